#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/quant/static/bias_quantization.h"

namespace ulp::quant {
namespace {

TEST(BiasCodes, RoundHalfToEven) {
  const at::Tensor codes = bias_codes(torch::tensor({0.5, 1.5, -2.5, 3.2}), torch::ones({4})).value();
  EXPECT_EQ(codes.scalar_type(), torch::kInt);
  EXPECT_TRUE(torch::equal(codes, torch::tensor({0, 2, -2, 3}, torch::kInt)));
}

TEST(BiasCodes, KeepHalfOfTheRangeForTheProducts) {
  const double largest = 1 << 30;
  const at::Tensor one = torch::ones({1});
  const auto code = [&](double value) { return bias_codes(torch::tensor({value}, torch::kDouble), one); };
  EXPECT_EQ(code(largest).value().item<int32_t>(), 1 << 30);
  EXPECT_EQ(code(-largest).value().item<int32_t>(), -(1 << 30));
  EXPECT_TRUE(code(largest + 256).has_value());  // two roundings of the scale to float32
  EXPECT_FALSE(code(largest + 257).has_value());
  EXPECT_FALSE(code(-1.5 * largest).has_value());
}

TEST(BiasCodes, FitAtTheSmallestWeightScaleWhateverTheNumbers) {
  torch::manual_seed(5);
  for (const double magnitude : {1e-6, 1.0, 1e6}) {
    const at::Tensor bias = torch::randn({4096}) * magnitude;
    const at::Tensor input_scale = torch::rand({1}) * 0.1 + 1e-3;
    for (const int64_t count : {int64_t{1}, bias.numel()}) {
      const at::Tensor scale = smallest_weight_scale(bias, input_scale, count);
      EXPECT_TRUE(bias_codes(bias, (input_scale * scale).expand({bias.numel()})).has_value()) << magnitude;
    }
  }
}

}  // namespace
}  // namespace ulp::quant
