// The gradients of fake quantization: the definition of the straight-through estimator, numeric Jacobians and
// LibTorch's operators.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "schemes.h"
#include "ulp/base/error.h"
#include "ulp/quant/operators/ops.h"

namespace ulp::quant {
namespace {

at::Tensor scalar(double value) {
  return torch::tensor({static_cast<float>(value)});
}

at::Tensor gradient(const at::Tensor& y, const at::Tensor& x, const at::Tensor& upstream) {
  return torch::autograd::grad({y}, {x}, {upstream})[0];
}

TEST(FakeQuantizeTies, TheZeroPointIsAddedAfterRounding) {
  // x = (k + 1/2) s: every value is a tie; an odd zero point shows which sum is rounded.
  const at::Tensor scale = torch::tensor({0.25F, 0.25F}), zero = torch::tensor({3, 4}, at::kInt);
  const at::Tensor x = ((torch::arange(-40, 40) + 0.5) * 0.25).repeat({2, 1});
  const at::Tensor ours = fake_quantize(x, scale, zero, 0, 0, 15);
  for (int64_t c = 0; c < 2; ++c) {
    EXPECT_TRUE(ours[c].equal(at::fake_quantize_per_tensor_affine(x[c], 0.25, zero[c].item<int>(), 0, 15)));
  }
  // LibTorch rounds the sum where the zero points of the channels are floats, and only there.
  EXPECT_TRUE(ours.equal(at::fake_quantize_per_channel_affine(x, scale, zero, 0, 0, 15)));
  const at::Tensor sums = at::fake_quantize_per_channel_affine(x, scale, zero.to(at::kFloat), 0, 0, 15);
  EXPECT_FALSE(ours[0].equal(sums[0]));
  EXPECT_TRUE(ours[1].equal(sums[1]));
}

TEST(FakeQuantizeGradient, IsOneInsideTheRangeAndZeroOutside) {
  const at::Tensor x = torch::tensor({-2.6F, -2.4F, -1.0F, 0.3F, 6.2F, 6.6F}).requires_grad_();
  // Codes 0 to 9 with zero point 2: values -2 to 7; -2.4 and 6.6 round into the range.
  const at::Tensor y = fake_quantize(x, torch::ones({1}), torch::full({1}, 2, at::kInt), -1, 0, 8);
  EXPECT_TRUE(gradient(y, x, torch::arange(1, 7).to(at::kFloat))
                  .equal(torch::tensor({0.0F, 2.0F, 3.0F, 4.0F, 5.0F, 0.0F})));
}

TEST(FakeQuantizeGradient, FollowsTheLayoutOfTheInputWhateverTheGradients) {
  torch::manual_seed(1);
  const at::Tensor base = torch::randn({3, 5, 4, 6}) * 3, weights = torch::randn({3, 5, 4, 6});
  const at::Tensor scale = torch::rand({5}) * 0.05 + 0.01, zero = torch::zeros({5}, at::kInt);
  const at::Tensor expected =
      weights * ((base / scale.view({1, 5, 1, 1})).round().abs() <= 50).to(at::kFloat);
  EXPECT_GT((expected == 0).sum().item<int>(), 20);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    for (const auto other : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const at::Tensor x = base.clone(format).requires_grad_();
      const at::Tensor y = fake_quantize(x, scale, zero, 1, -50, 50);
      EXPECT_TRUE(gradient(y, x, weights.clone(other)).equal(expected));
    }
  }
  // A gradient without memory of its own, and an input that is no dense block.
  const at::Tensor x = base.permute({2, 0, 3, 1}).slice(0, 0, 4, 2).detach().requires_grad_();
  const at::Tensor y = fake_quantize(x, scalar(0.02), kZero, -1, -50, 50);
  const at::Tensor ones = torch::ones({}).expand(y.sizes());
  EXPECT_TRUE(gradient(y, x, ones).equal(((x / 0.02F).round().abs() <= 50).to(at::kFloat)));
}

TEST(FakeQuantizeGradient, OfOtherFloatTypes) {
  torch::manual_seed(2);
  for (const auto type : {at::kBFloat16, at::kHalf, at::kDouble}) {
    const at::Tensor x = (torch::randn({300}) * 2).to(type).requires_grad_();
    const at::Tensor y = fake_quantize(x, scalar(0.125), kZero, -1, -8, 7);
    ASSERT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(y.equal(fake_quantize(x.to(at::kFloat), scalar(0.125), kZero, -1, -8, 7).to(type)));
    const at::Tensor weights = torch::randn({300}).to(type);
    const at::Tensor codes = (x.detach().to(at::kFloat) / 0.125F).round();
    const at::Tensor inside = (codes >= -8).logical_and(codes <= 7);
    EXPECT_TRUE(gradient(y, x, weights).equal(weights * inside.to(type))) << type;
  }
}

// The straight-through estimator is the derivative of a function: that where the error of rounding is held
// fixed. Its numeric Jacobian, in double and away from the ends of the range, is what backward must give.
struct Surrogate {
  at::Tensor residual;  // round(x / s) - x / s at the point
  double qmin, qmax;
  Surrogate(const at::Tensor& x, double s, double low, double high)
      : residual((x / s).round() - x / s), qmin(low), qmax(high) {}
  at::Tensor operator()(const at::Tensor& x, double s, double z) const {
    const at::Tensor inside = (x / s + residual) * s, code = x / s + z;
    const at::Tensor low = torch::full_like(x, (qmin - z) * s), high = torch::full_like(x, (qmax - z) * s);
    return at::where(code < qmin - 0.5, low, at::where(code > qmax + 0.5, high, inside));
  }
};

TEST(FakeQuantizeGradient, IsTheNumericJacobianWithTheRoundingHeldFixed) {
  torch::manual_seed(3);
  const double s = 0.3, z = 5, step = 1e-6;
  const at::Tensor x = torch::randn({24}).to(at::kDouble) * 2, weights = torch::randn({24}).to(at::kDouble);
  const Surrogate f(x, s, 0, 15);
  EXPECT_TRUE(
      at::allclose(f(x, s, z).to(at::kFloat),
                   fake_quantize(x.to(at::kFloat), scalar(s), torch::full({1}, 5, at::kInt), -1, 0, 15)));
  const at::Tensor leaf = x.to(at::kFloat).requires_grad_(), scale = scalar(s).requires_grad_(),
                   zero = scalar(z).requires_grad_();
  const at::Tensor y = fake_quantize_learned(leaf, scale, zero, -1, 0, 15);
  const auto grads =
      torch::autograd::grad({y}, {leaf, scale, zero}, {weights.to(at::kFloat)}, /*retain_graph=*/true);
  const auto slope = [&](const at::Tensor& up, const at::Tensor& down) {
    return ((up - down) * weights).sum().item<double>() / (2 * step);
  };
  for (int64_t i = 0; i < x.numel(); ++i) {
    const at::Tensor shift = torch::zeros_like(x);
    shift[i] = step;
    EXPECT_NEAR(grads[0][i].item<double>(), slope(f(x + shift, s, z), f(x - shift, s, z)), 1e-5) << i;
  }
  EXPECT_NEAR(grads[1].item<double>(), slope(f(x, s + step, z), f(x, s - step, z)), 1e-4);
  EXPECT_NEAR(grads[2].item<double>(), slope(f(x, s, z + step), f(x, s, z - step)), 1e-4);
  const at::Tensor fixed = fake_quantize(leaf, scale.detach(), torch::full({1}, 5, at::kInt), -1, 0, 15);
  EXPECT_TRUE(gradient(fixed, leaf, weights.to(at::kFloat)).equal(grads[0]));
}

TEST(LearnedFakeQuantize, EqualsLibTorchPerTensor) {
  torch::manual_seed(4);
  for (const double z : {0.0, 7.3, -4.0}) {
    const at::Tensor values = torch::randn({50, 700}), weights = torch::randn({50, 700});
    at::Tensor results[2][4];
    for (const int theirs : {0, 1}) {
      const at::Tensor x = values.clone().requires_grad_(), s = scalar(0.07).requires_grad_(),
                       zero = scalar(z).requires_grad_();
      const at::Tensor y = theirs ? at::_fake_quantize_learnable_per_tensor_affine(x, s, zero, 0, 31, 0.01)
                                  : fake_quantize_learned(x, s, zero, -1, 0, 31, 0.01);
      const auto grads = torch::autograd::grad({y}, {x, s, zero}, {weights});
      results[theirs][0] = y.detach();
      for (size_t i = 0; i < 3; ++i) results[theirs][i + 1] = grads[i];
    }
    EXPECT_TRUE(results[0][0].equal(results[1][0])) << z;
    EXPECT_TRUE(results[0][1].equal(results[1][1])) << z;
    EXPECT_TRUE(at::allclose(results[0][2], results[1][2], 1e-4)) << results[0][2] << results[1][2];
    EXPECT_TRUE(at::allclose(results[0][3], results[1][3], 1e-4)) << results[0][3] << results[1][3];
  }
}

TEST(LearnedFakeQuantize, EqualsLibTorchPerChannel) {
  torch::manual_seed(5);
  for (int64_t axis = 0; axis < 3; ++axis) {
    const at::Tensor values = torch::randn({8, 5, 70}), weights = torch::randn({8, 5, 70});
    const at::Tensor scales = torch::rand({values.size(axis)}) * 0.05 + 0.02;
    at::Tensor results[2][3];
    for (const int theirs : {0, 1}) {
      const at::Tensor x = values.clone().requires_grad_(), s = scales.clone().requires_grad_();
      const at::Tensor zero = torch::zeros_like(scales);
      const at::Tensor y = theirs
                               ? at::_fake_quantize_learnable_per_channel_affine(x, s, zero, axis, -7, 7, 0.5)
                               : fake_quantize_learned(x, s, zero, axis, -7, 7, 0.5);
      const auto grads = torch::autograd::grad({y}, {x, s}, {weights});
      results[theirs][0] = y.detach();
      for (size_t i = 0; i < 2; ++i) results[theirs][i + 1] = grads[i];
    }
    EXPECT_TRUE(results[0][0].equal(results[1][0])) << axis;
    EXPECT_TRUE(results[0][1].equal(results[1][1])) << axis;
    EXPECT_TRUE(at::allclose(results[0][2], results[1][2], 1e-4, 1e-5)) << results[0][2] << results[1][2];
  }
}

TEST(LearnedFakeQuantize, DoesNotDependOnTheNumberOfThreads) {
  torch::manual_seed(6);
  const at::Tensor values = torch::randn({200'000}), weights = torch::randn({200'000});
  const int before = at::get_num_threads();
  std::vector<at::Tensor> seen;
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    const at::Tensor s = scalar(0.1).requires_grad_();
    seen.push_back(gradient(fake_quantize_learned(values, s, scalar(0), -1, -7, 7), s, weights));
  }
  at::set_num_threads(before);
  EXPECT_TRUE(seen[0].equal(seen[1]));
}

TEST(LearnedFakeQuantize, AWholeZeroPointIsFixed) {
  const at::Tensor s = scalar(0.5).requires_grad_();
  fake_quantize_learned(torch::randn({9}), s, kZero, -1, -7, 7).sum().backward();
  EXPECT_TRUE(s.grad().defined());
}

TEST(FakeQuantize, RefusesWrongArguments) {
  const at::Tensor x = torch::zeros({2, 3}), one = torch::ones({1});
  EXPECT_THROW(fake_quantize(x, one, kZero, 2, 0, 255), Error);
  EXPECT_THROW(fake_quantize(x, one, kZero, 1, 0, 255), Error);
  EXPECT_THROW(fake_quantize(x, one, kZero, -1, 0, 65536), Error);
  EXPECT_THROW(fake_quantize(x, one, kZero, -1, 5, 4), Error);
  EXPECT_THROW(fake_quantize(x.to(at::kLong), one, kZero, -1, 0, 255), Error);
  EXPECT_THROW(fake_quantize_learned(x, one, kZero, 1, 0, 255), Error);
  EXPECT_THROW(fake_quantize_learned(x.to(at::kLong), one, kZero, -1, 0, 255), Error);
}

}  // namespace
}  // namespace ulp::quant
