// NormalFloat of 4 bits beside its definition.
#include "ulp/lora/nf4.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "error_of.h"
#include "ulp/lora/frozen_weight.h"

namespace ulp::lora {
namespace {

using at::Tensor;

/// The quantile of the normal distribution, by bisection of its distribution function.
double normal_quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// n quantiles of equally spaced probabilities from `from` down to 1 / 2, without the last, which is 0.
std::vector<double> half(double from, int n) {
  std::vector<double> found;
  for (int i = 0; i < n; ++i) found.push_back(normal_quantile(from + (0.5 - from) * i / n));
  return found;
}

TEST(Nf4, TheTableHasTheQuantilesOfTheNormalDistribution) {
  // The paper's offset: the mean of 1 - 1 / (2 * 15) and 1 - 1 / (2 * 16).
  const double offset = (1 - 1 / 30.0 + 1 - 1 / 32.0) / 2;
  EXPECT_NEAR(offset, 0.9677083, 1e-7);
  std::vector<double> values = {0};
  for (const double v : half(offset, 8)) values.push_back(v);
  for (const double v : half(offset, 7)) values.push_back(-v);
  std::ranges::sort(values);
  ASSERT_EQ(values.size(), 16U);
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(nf4_table()[i], values[i] / values.back(), 2e-7) << i;
}

TEST(Nf4, TheDynamicTypeHasSevenDecades) {
  const auto& table = dynamic_table();
  EXPECT_EQ(table.back(), 1.0F);
  EXPECT_TRUE(std::ranges::is_sorted(table));
  EXPECT_EQ(std::ranges::adjacent_find(table), table.end());
  EXPECT_EQ(std::ranges::count(table, 0.0F), 1);
  EXPECT_FLOAT_EQ(table.front(), -(1 - 0.9F / 128));
  EXPECT_FLOAT_EQ(table[128], 5.5e-7F);  // the smallest above 0, which has 127 below
  EXPECT_EQ(table[127], 0.0F);
}

class Nf4Sizes : public ::testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(Nf4Sizes, EachWeightHasTheNearestOfItsBlock) {
  torch::manual_seed(GetParam()[0]);
  const Tensor w = torch::randn(GetParam()) * torch::rand({GetParam()[0], 1});
  const FrozenWeight frozen = freeze_weight("w", w, LoraBase::nf4, {});
  frozen.check();
  const Tensor back = dequantize(frozen);
  const float *x = w.const_data_ptr<float>(), *y = back.const_data_ptr<float>();
  for (int64_t block = 0; block < w.numel(); block += 64) {
    const int64_t end = std::min(w.numel(), block + 64);
    float most = 0;
    for (int64_t i = block; i < end; ++i) most = std::max(most, std::abs(x[i]));
    for (int64_t i = block; i < end; ++i) {
      float nearest = INFINITY;
      for (const float number : nf4_table()) {
        if (std::abs(number * most - x[i]) < std::abs(nearest - x[i])) nearest = number * most;
      }
      // Of two that are nearly as near, either may be taken.
      EXPECT_LE(std::abs(y[i] - x[i]), std::abs(nearest - x[i]) + 2e-7F * most) << i;
    }
  }
  EXPECT_TRUE(at::equal(dequantize(frozen, at::kBFloat16), back.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(dequantize(frozen, at::kHalf), back.to(at::kHalf)));
}

INSTANTIATE_TEST_SUITE_P(All, Nf4Sizes,
                         ::testing::Values(std::vector<int64_t>{1, 1}, std::vector<int64_t>{3, 7},
                                           std::vector<int64_t>{5, 63}, std::vector<int64_t>{16, 64},
                                           std::vector<int64_t>{33, 97}, std::vector<int64_t>{200, 130}));

TEST(Nf4, CodesAndScalesOfGivenNumbers) {
  // 0.2 is nearest to 0.2461 of the table, -0.1 to -0.0911; what is 0 has the code 7.
  const Tensor w = torch::tensor({0.5F, 0.1F, -0.05F, 0.0F, -0.5F}).view({1, 5});
  const Nf4Tensor codes = quantize_nf4(w, false);
  EXPECT_TRUE(at::equal(codes.absmax, torch::tensor({0.5F})));
  EXPECT_TRUE(at::equal(codes.codes, torch::tensor({0xF0 | 9, 0x67, 0x07}, at::kByte)));
  const Tensor zeros =
      dequantize(freeze_weight("w", torch::zeros({2, 40}), LoraBase::nf4, {.double_quant = true}));
  EXPECT_EQ(zeros.count_nonzero().item<int64_t>(), 0);
}

TEST(Nf4, DoubleQuantizationKeepsScalesWithinItsTable) {
  torch::manual_seed(3);
  const Tensor w = torch::randn({300, 200}) * 0.02;
  const Nf4Tensor plain = quantize_nf4(w, false), twice = quantize_nf4(w, true);
  EXPECT_TRUE(at::equal(plain.codes, twice.codes));
  EXPECT_EQ(twice.absmax.scalar_type(), at::kByte);
  EXPECT_EQ(twice.scale_absmax->numel(), (plain.absmax.numel() + 255) / 256);
  EXPECT_NEAR(twice.offset->item<double>(), plain.absmax.mean().item<double>(), 1e-7);
  const Tensor scales = nf4_scales(twice);
  for (int64_t i = 0; i < scales.numel(); ++i) {
    // Numbers of the largest decade are 0.9 / 64 apart, and 1 is 0.9 / 128 beyond its last one; the negative
    // end stops 0.9 / 128 before -1.
    const double step = 0.9 / 64 * (*twice.scale_absmax)[i / 256].item<double>();
    EXPECT_LE(std::abs((scales[i] - plain.absmax[i]).item<double>()), step / 2 + 1e-7) << i;
  }
}

TEST(FrozenWeight, RefusesPartsOfOtherSizes) {
  const FrozenWeight good = freeze_weight("w", torch::randn({4, 64}), LoraBase::nf4, {.double_quant = true});
  good.check();
  FrozenWeight bad = good;
  bad.rows = 5;
  EXPECT_ERROR(bad.check(), "part 0");
  bad = good;
  bad.parts[1] = bad.parts[1].to(at::kFloat);
  EXPECT_ERROR(bad.check(), "part 1");
  bad = good;
  bad.parts.pop_back();
  EXPECT_ERROR(bad.check(), "3 parts");
  bad = good;
  bad.rows = bad.columns = int64_t{1} << 40;
  EXPECT_ERROR(bad.check(), "rows");
  bad = freeze_weight("w", torch::randn({4, 64}), LoraBase::int4, {});
  bad.columns = 65;
  EXPECT_ERROR(bad.check(), "part 0");
  bad.parts[0] = at::Tensor();
  EXPECT_ERROR(bad.check(), "int4");
}

}  // namespace
}  // namespace ulp::lora
