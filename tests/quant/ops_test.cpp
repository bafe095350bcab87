#include "ulp/quant/operators/ops.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "boxed.h"
#include "error_of.h"
#include "schemes.h"
#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

at::Tensor per_channel_scale(int64_t channels) {
  return torch::rand({channels}) * 0.05 + 0.001;
}

TEST(Quantize, EveryTieRoundsToEvenAndSaturates) {
  // Scale 0.5 and zero point 3: x = k / 4 walks over every half step.
  for (int k = -600; k <= 600; ++k) {
    const float x = static_cast<float>(k) * 0.25F;
    const auto q = quantize(torch::tensor({x}), torch::tensor({0.5F}), torch::tensor({3}, at::kInt), -1, 0,
                            255, at::kByte);
    const double expected = std::clamp(std::nearbyint(k * 0.5) + 3, 0.0, 255.0);
    ASSERT_EQ(q.item<int>(), static_cast<int>(expected)) << "x = " << x;
  }
}

TEST(Quantize, NonFiniteValuesAreDefined) {
  const at::Tensor x = torch::tensor({NAN, -INFINITY, INFINITY, 1e38F, -1e38F});
  const auto q = quantize(x, torch::tensor({0.5F}), kZero, -1, -127, 127, at::kChar);
  EXPECT_TRUE(q.equal(torch::tensor({-127, -127, 127, 127, -127}, at::kChar))) << q;
}

/// Sums of four cells.
TEST(AverageCodes, RoundsToEvenOrAwayFromCodeZero) {
  const at::Tensor sums = torch::tensor({1, 2, 3, 6, -1, -2, -6, 10}, at::kChar);
  const at::Tensor codes = at::constant_pad_nd(sums.view({1, 8, 1, 1}), {0, 1, 0, 1}),
                   scale = torch::tensor({0.1F});
  const std::vector<int64_t> two = {2, 2}, none = {0, 0};
  const auto average = [&](const at::Tensor& q, int zero_point, const at::Tensor& to, const char* rounding) {
    const at::Tensor zero = torch::tensor({zero_point}, at::kInt);
    return boxed("ulp::average_codes", "", {q, scale, zero, to, zero, two, two, none, false, true, rounding})
        .toTensor()
        .flatten();
  };
  for (const int zero_point : {0, 3, -128, 127})
    EXPECT_TRUE(average(codes, zero_point, scale, "half_away")
                    .equal(torch::tensor({0, 1, 1, 2, 0, -1, -2, 3}, at::kChar)))
        << zero_point;
  const at::Tensor even = average(codes, 0, scale, "half_even");
  EXPECT_TRUE(even.equal(torch::tensor({0, 0, 1, 2, 0, 0, -2, 2}, at::kChar))) << even;
  EXPECT_ERROR(average(codes, 0, scale, "up"), "expected rounding 'half_even' or 'half_away', got 'up'");
  EXPECT_ERROR(average(codes, 0, scale * 2, "half_away"), "keep their scale");
  EXPECT_ERROR(average(codes.abs().to(at::kByte), 0, scale, "half_away"), "of dtype Char");
}

TEST(Quantize, KeepsChannelsLastAndMatchesContiguous) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({3, 5, 4, 6});
  const at::Tensor scale = per_channel_scale(5), zero = torch::randint(100, 150, {5}, at::kInt);
  const auto plain = quantize(x, scale, zero, 1, 0, 255, at::kByte);
  const auto last = quantize(x.to(at::MemoryFormat::ChannelsLast), scale, zero, 1, 0, 255, at::kByte);
  EXPECT_TRUE(last.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(plain.equal(last));
  const auto back = dequantize(last, scale, zero, 1);
  EXPECT_TRUE(back.is_contiguous(at::MemoryFormat::ChannelsLast));
  const auto expected = (plain.to(at::kFloat) - zero.view({1, 5, 1, 1})) * scale.view({1, 5, 1, 1});
  EXPECT_TRUE(back.equal(expected));
}

TEST(Quantize, AnyStridesAndAxis) {
  torch::manual_seed(2);
  const at::Tensor base = torch::randn({4, 6, 8, 2});
  for (const at::Tensor& x :
       {base.permute({2, 0, 3, 1}), base.slice(1, 0, 6, 2), base[0].unsqueeze(0).expand({3, 6, 8, 2})}) {
    for (int64_t axis = 0; axis < 4; ++axis) {
      const at::Tensor scale = per_channel_scale(x.size(axis)), zero = torch::zeros({x.size(axis)}, at::kInt);
      std::vector<int64_t> shape(4, 1);
      shape[static_cast<size_t>(axis)] = -1;
      const auto expected = at::round(x * scale.reciprocal().view(shape)).clamp(-127, 127).to(at::kChar);
      const auto q = quantize(x, scale, zero, axis, -127, 127, at::kChar);
      EXPECT_TRUE(q.equal(expected)) << "axis " << axis << ", strides " << x.strides();
    }
  }
}

TEST(Quantize, EmptyAndScalarTensors) {
  EXPECT_EQ(quantize(torch::zeros({0, 3}), torch::ones({1}), kZero, -1, 0, 255, at::kByte).sizes(),
            (at::IntArrayRef{0, 3}));
  EXPECT_EQ(
      quantize(torch::zeros({0, 3}), torch::ones({3}), torch::zeros({3}, at::kInt), 1, 0, 255, at::kByte)
          .numel(),
      0);
  EXPECT_EQ(quantize(torch::tensor(2.6F), torch::ones({1}), kZero, -1, 0, 255, at::kByte).item<int>(), 3);
}

TEST(Quantize, RefusesWrongArguments) {
  const at::Tensor x = torch::zeros({2, 3}), one = torch::ones({1});
  EXPECT_THROW(quantize(x, one, kZero, 2, 0, 255, at::kByte), Error);
  EXPECT_THROW(quantize(x, one, kZero, 1, 0, 255, at::kByte), Error);
  EXPECT_THROW(quantize(x, one, kZero, -1, 0, 256, at::kByte), Error);
  EXPECT_THROW(quantize(x, one, kZero, -1, 0, 255, at::kInt), Error);
  EXPECT_THROW(quantize(x.to(at::kLong), one, kZero, -1, 0, 255, at::kByte), Error);
  EXPECT_THROW(dequantize(x, one, kZero, -1), Error);
}

TEST(Dequantize, Int32Codes) {
  const auto x = dequantize(torch::tensor({-1000000, 5, 16777216}, at::kInt),
                            torch::tensor({0.5F, 2.0F, 1.0F}), torch::zeros({3}, at::kInt), 0);
  EXPECT_TRUE(x.equal(torch::tensor({-500000.0F, 10.0F, 16777216.0F})));
}

// The same numbers and the same gradient as LibTorch's own operator.
TEST(FakeQuantize, EqualsLibTorchPerTensor) {
  torch::manual_seed(3);
  for (const double scale : {0.01, 0.037, 1.0, 3e-5}) {
    const at::Tensor values = torch::randn({64, 33}) * 2;
    const at::Tensor ours = values.clone().requires_grad_(), theirs = values.clone().requires_grad_();
    const auto y = fake_quantize(ours, torch::tensor({static_cast<float>(scale)}),
                                 torch::tensor({117}, at::kInt), -1, 0, 255);
    const auto z = at::fake_quantize_per_tensor_affine(theirs, scale, 117, 0, 255);
    EXPECT_TRUE(y.equal(z)) << "scale " << scale;
    const at::Tensor weights = torch::randn_like(values);
    (y * weights).sum().backward();
    (z * weights).sum().backward();
    EXPECT_TRUE(ours.grad().equal(theirs.grad())) << "scale " << scale;
  }
}

TEST(FakeQuantize, EqualsLibTorchPerChannel) {
  torch::manual_seed(4);
  for (int64_t axis = 0; axis < 3; ++axis) {
    const at::Tensor values = torch::randn({8, 5, 7});
    const at::Tensor scale = per_channel_scale(values.size(axis)),
                     zero = torch::zeros({values.size(axis)}, at::kInt);
    const at::Tensor ours = values.clone().requires_grad_(), theirs = values.clone().requires_grad_();
    const auto y = fake_quantize(ours, scale, zero, axis, -127, 127);
    const auto z = at::fake_quantize_per_channel_affine(theirs, scale, zero, axis, -127, 127);
    EXPECT_TRUE(y.equal(z)) << "axis " << axis;
    y.square().sum().backward();
    z.square().sum().backward();
    EXPECT_TRUE(ours.grad().equal(theirs.grad())) << "axis " << axis;
  }
}

TEST(FakeQuantize, IsDequantizeOfQuantize) {
  torch::manual_seed(5);
  const at::Tensor x = torch::randn({100}) * 3;
  const QParams params = choose_qparams(x.min(), x.max(), Scheme{});
  EXPECT_TRUE(fake_quantize(x, params).equal(dequantize(quantize(x, params), params)));
}

TEST(FakeQuantize, KeepsDtypeAndDropsInfiniteGradientsOutside) {
  const at::Tensor x = torch::tensor({0.5F, 1e30F, NAN}).to(at::kBFloat16).requires_grad_();
  const auto y = fake_quantize(x, torch::ones({1}) * 0.25, kZero, -1, 0, 255);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.backward(torch::tensor({1.0F, INFINITY, INFINITY}).to(at::kBFloat16));
  EXPECT_TRUE(x.grad().equal(torch::tensor({1.0F, 0.0F, 0.0F}).to(at::kBFloat16)));
}

TEST(Operators, AreFoundByTheDispatcherByName) {
  for (const char* name : {"ulp::quantize", "ulp::dequantize", "ulp::fake_quantize"}) {
    EXPECT_TRUE(c10::Dispatcher::singleton().findSchema({name, ""}).has_value()) << name;
  }
  // With gradients on, the codes of a tensor that requires grad are plain integers.
  const auto q = quantize(torch::ones({2}).requires_grad_(), torch::ones({1}), kZero, -1, 0, 255, at::kByte);
  EXPECT_FALSE(q.requires_grad());
}

}  // namespace
}  // namespace ulp::quant
