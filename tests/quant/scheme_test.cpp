#include "ulp/quant/scheme/scheme.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <limits>

#include "schemes.h"
#include "ulp/base/error.h"
#include "ulp/quant/operators/ops.h"

namespace ulp::quant {
namespace {

QParams from_data(const at::Tensor& x, const Scheme& scheme) {
  return choose_qparams(x.min(), x.max(), scheme);
}

std::vector<int64_t> codes(const at::Tensor& x, const QParams& params) {
  const at::Tensor q = quantize(x, params).to(at::kLong).reshape(-1);
  return {q.const_data_ptr<int64_t>(), q.const_data_ptr<int64_t>() + q.numel()};
}

TEST(Scheme, RangesOfCodes) {
  EXPECT_EQ(kU8.qmin(), 0);
  EXPECT_EQ(kU8.qmax(), 255);
  EXPECT_EQ(kS8.qmin(), -128);
  EXPECT_EQ(kS8Restricted.qmin(), -127);
  EXPECT_EQ(kS8Restricted.qmax(), 127);
  EXPECT_EQ((Scheme{.bits = 2, .is_signed = true}.qmin()), -2);
  EXPECT_EQ((Scheme{.bits = 4}.qmax()), 15);
  EXPECT_EQ(kS8Restricted.to_string(), "s8 symmetric restricted per tensor");
}

TEST(Scheme, RefusesWhatCannotBe) {
  EXPECT_THROW(Scheme{.bits = 9}.validate(), Error);
  EXPECT_THROW(Scheme{.bits = 1}.validate(), Error);
  EXPECT_THROW(Scheme{.range = Range::restricted}.validate(), Error);
  EXPECT_THROW(Scheme{.granularity = PerChannel{-1}}.validate(), Error);
}

TEST(ChooseQParams, RangeAlwaysHoldsZero) {
  const QParams above = choose_qparams(torch::tensor(1.0F), torch::tensor(2.55F), kU8);
  EXPECT_FLOAT_EQ(above.scale.item<float>(), 2.55F / 255);
  EXPECT_EQ(above.zero_point.item<int>(), 0);
  const QParams below = choose_qparams(torch::tensor(-2.55F), torch::tensor(-1.0F), kU8);
  EXPECT_EQ(below.zero_point.item<int>(), 255);
}

TEST(ChooseQParams, ScaleHasAFloor) {
  const QParams zero = choose_qparams(torch::tensor(0.0F), torch::tensor(0.0F), kU8);
  EXPECT_EQ(zero.scale.item<float>(), 0x1p-23F);
  EXPECT_EQ(zero.zero_point.item<int>(), 0);
}

TEST(ChooseQParams, ARangeWiderThanFloat32HasItsExactScale) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const QParams whole = choose_qparams(torch::tensor(-kMax), torch::tensor(kMax), kU8);
  EXPECT_EQ(whole.scale.item<float>(), static_cast<float>(2.0 * kMax / 255));  // 2.67e36
  EXPECT_EQ(whole.zero_point.item<int>(), 128);
  const at::Tensor x = torch::tensor({-3.3e38F, -1e38F, 0.0F, 1e38F, kMax});
  EXPECT_LE((fake_quantize(x, whole) - x).abs().max().item<float>(), 0.51F * whole.scale.item<float>());
  const QParams lopsided = choose_qparams(torch::tensor(-0.25F * kMax), torch::tensor(kMax), kU8);
  EXPECT_EQ(lopsided.scale.item<float>(), static_cast<float>(1.25 * kMax / 255));
  EXPECT_EQ(lopsided.zero_point.item<int>(), 51);
  // Two steps are the fewest: the scale is finite.
  const Scheme smallest{.bits = 2, .is_signed = true, .range = Range::restricted};
  EXPECT_EQ(choose_qparams(torch::tensor(-kMax), torch::tensor(kMax), smallest).scale.item<float>(), kMax);
}

TEST(ChooseQParams, RangesThatFitAreDividedInFloat32) {
  torch::manual_seed(5);
  const at::Tensor low = -torch::rand({1000}) * 1.7e38F, high = torch::rand({1000}) * 1.7e38F;
  const Scheme channels{.granularity = PerChannel{0}};
  EXPECT_TRUE(choose_qparams(low, high, channels).scale.equal((high - low) / 255.0F));
}

// The zero points of PyTorch's observers: 128 for quint8, (quant_min + quant_max) // 2 for a range of one's own.
TEST(ChooseQParams, TheMiddleOfSymmetricUnsignedCodes) {
  const std::array<int, 7> middles = {1, 3, 7, 15, 31, 63, 128};
  for (int64_t bits = 2; bits <= 8; ++bits) {
    const Scheme scheme{.bits = bits, .mapping = Mapping::symmetric};
    const QParams params = choose_qparams(torch::tensor(-1.0F), torch::tensor(0.5F), scheme);
    EXPECT_EQ(params.zero_point.item<int>(), middles[static_cast<size_t>(bits - 2)]) << bits;
    EXPECT_EQ(params.scale.item<float>(), 1.0F / (static_cast<float>(scheme.qmax()) / 2)) << bits;
  }
}

TEST(ChooseQParams, RefusesBadBounds) {
  EXPECT_THROW(choose_qparams(torch::tensor(NAN), torch::tensor(1.0F), kU8), Error);
  EXPECT_THROW(choose_qparams(torch::tensor(0.0F), torch::tensor(INFINITY), kU8), Error);
  EXPECT_THROW(choose_qparams(torch::tensor(2.0F), torch::tensor(1.0F), kU8), Error);
  EXPECT_THROW(choose_qparams(torch::zeros({2}), torch::ones({2}), kU8), Error);
}

// Full-range int8 has a bias that the restricted range does not have.
TEST(WorkedExample, FullRangeIsBiasedRestrictedIsNot) {
  const at::Tensor a = torch::tensor({-2.2F, -1.1F, 1.1F, 2.2F}), b = torch::tensor({.5F, .3F, .3F, .5F});
  const auto product = [&](const QParams& pa, const QParams& pb) {
    return quantize(a, pa).to(at::kInt).dot(quantize(b, pb).to(at::kInt)).item<int>();
  };
  EXPECT_EQ(product(from_data(a, kS8), from_data(b, kS8)), -127);
  EXPECT_EQ(product(from_data(a, kS8Restricted), from_data(b, kS8Restricted)), 0);
  // The printed -0.00853 belongs to scales of max / 128, not max / 127.5.
  const QParams pa{torch::tensor({2.2F / 128}), torch::zeros({1}, at::kInt), kS8};
  const QParams pb{torch::tensor({.5F / 128}), torch::zeros({1}, at::kInt), kS8};
  EXPECT_NEAR(product(pa, pb) * pa.scale.item<float>() * pb.scale.item<float>(), -0.00853, 5e-6);
}

TEST(WorkedExample, SignedFourBits) {
  const at::Tensor x = torch::tensor({{-1.54F, 0.22F}, {-0.26F, 2.0F}});
  const Scheme scheme{
      .bits = 4, .is_signed = true, .mapping = Mapping::symmetric, .range = Range::restricted};
  const QParams params = choose_qparams(torch::tensor(-2.0F), torch::tensor(2.0F), scheme);
  EXPECT_EQ(std::floor(params.scale.item<float>() * 1000), 285);  // printed as 0.285
  EXPECT_EQ(codes(x, params), (std::vector<int64_t>{-5, 1, -1, 7}));
}

TEST(WorkedExample, UnsignedEightBits) {
  const at::Tensor x = torch::tensor({{0.34F, 3.75F}, {-4.7F, 0.68F}});
  const QParams params = from_data(x, kU8);
  EXPECT_EQ(codes(x, params), (std::vector<int64_t>{152, 255, 0, 163}));
  const at::Tensor error = (dequantize(quantize(x, params), params) - x).abs();
  EXPECT_LE(error.max().item<float>(), params.scale.item<float>() / 2 + 1e-6F);
  // The article prints [[64, 134], [3, 81]], which no scale and zero point give: 17 codes between 0.34 and
  // 0.68 but only 53 between 0.68 and 3.75.
  const std::array<float, 4> values = {0.34F, 3.75F, -4.7F, 0.68F};
  const std::array<int, 4> printed = {64, 134, 3, 81};
  for (int step = 50; step < 2000; ++step) {
    for (int z = 0; z < 256; ++z) {
      bool same = true;
      for (size_t i = 0; i < 4 && same; ++i) {
        const float q =
            std::nearbyint(values[i] / (static_cast<float>(step) * 1e-4F)) + static_cast<float>(z);
        same = static_cast<int>(std::clamp(q, 0.0F, 255.0F)) == printed[i];
      }
      ASSERT_FALSE(same) << "scale " << step * 1e-4 << " zero point " << z;
    }
  }
}

}  // namespace
}  // namespace ulp::quant
