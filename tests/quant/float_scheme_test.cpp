// Small floating-point formats as a target: against the definitions of the formats room, code by code.
#include "ulp/quant/scheme/float_scheme.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "ulp/base/error.h"
#include "ulp/formats/convert.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {
namespace {

TEST(FloatScheme, KnowsTheFormats) {
  EXPECT_EQ(FloatScheme{}.max(), 448);
  EXPECT_EQ(FloatScheme{"e5m2"}.max(), 57344);
  EXPECT_EQ(FloatScheme{"e4m3"}.max(), 240);  // the one with infinities
  EXPECT_EQ((FloatScheme{"e5m2", PerToken{}}.to_string()), "fp8_e5m2 per token");
  EXPECT_NO_THROW(FloatScheme{"fp4_e2m1"}.validate());
  for (const char* format : {"int8", "bf16", "binary", "e9m9"}) {
    EXPECT_THROW(FloatScheme{format}.validate(), Error) << format;
  }
  EXPECT_THROW((FloatScheme{"e5m2", PerGroup{0}}.validate()), Error);
}

TEST(FloatScheme, LargestMagnitudeMeetsTheLargestNumber) {
  const at::Tensor x = torch::tensor({{0.5F, -3.0F, 1.0F}, {1e-3F, 2e-4F, -1e-5F}});
  for (const char* format : {"e4m3fn", "e5m2", "e4m3", "e4m3fnuz", "fp6_e3m2", "fp4_e2m1"}) {
    const FloatScheme scheme{format, PerToken{}};
    const FloatQParams params = qparams_of(x, scheme);
    EXPECT_FLOAT_EQ(params.scale[0].item<float>(), static_cast<float>(3.0 / scheme.max()));
    EXPECT_FLOAT_EQ(params.scale[1].item<float>(), static_cast<float>(1e-3 / scheme.max()));
    const at::Tensor back = quantize_dequantize(x, params);
    EXPECT_FLOAT_EQ(back[0][1].item<float>(), -3.0F) << format;
    EXPECT_FLOAT_EQ(back[1][0].item<float>(), 1e-3F) << format;
  }
}

TEST(FloatScheme, CodesAreThoseOfTheFormat) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({7, 90}) * 20;
  for (const char* format : {"e4m3fn", "e5m2"}) {
    const formats::Format& target = formats::find(format);
    for (const Granularity& granularity : {Granularity(PerTensor{}), Granularity(PerChannel{1}),
                                           Granularity(PerGroup{32}), Granularity(PerBlock{4, 16})}) {
      const FloatQParams params = qparams_of(x, {format, granularity});
      const at::Tensor codes = quantize(x, params), back = dequantize(codes, params);
      ASSERT_EQ(codes.scalar_type(), at::kByte);
      const at::Tensor scales =
          from_rows(params.scale.reshape({-1, 1}).expand_as(to_rows(x, granularity)), granularity, x.sizes())
              .contiguous();
      for (int64_t i = 0; i < x.numel(); ++i) {
        const float value = x.reshape(-1)[i].item<float>(), s = scales.reshape(-1)[i].item<float>();
        const uint64_t code = formats::encode(target, value / s);
        ASSERT_EQ(codes.reshape(-1)[i].item<int64_t>(), static_cast<int64_t>(code))
            << to_string(granularity) << i;
        ASSERT_EQ(back.reshape(-1)[i].item<float>(), static_cast<float>(formats::decode(target, code)) * s);
      }
    }
  }
}

TEST(FloatScheme, EveryCodeSurvivesTheRoundTrip) {
  const FloatQParams params = choose_qparams(torch::tensor({448.0F * 0.25F}), FloatScheme{});
  EXPECT_EQ(params.scale.item<float>(), 0.25F);
  const at::Tensor codes = at::arange(0, 256, at::kByte);
  const at::Tensor values = dequantize(codes, params);
  EXPECT_EQ(at::isnan(values).sum().item<int>(), 2);
  const at::Tensor finite = ~at::isnan(values);
  EXPECT_TRUE(quantize(values, params).index({finite}).equal(codes.index({finite})));
}

TEST(FloatScheme, DegenerateMagnitudesKeepScaleOne) {
  for (const float amax : {0.0F, INFINITY, NAN}) {
    EXPECT_EQ(choose_qparams(torch::tensor(amax), FloatScheme{}).scale.item<float>(), 1.0F) << amax;
  }
  EXPECT_EQ(choose_qparams(torch::tensor(1e-44F), FloatScheme{}).scale.item<float>(), 0x1p-126F);
  EXPECT_THROW(choose_qparams(torch::tensor(-1.0F), FloatScheme{}), Error);
  // e4m3fn saturates, e5m2 overflows; NaN stays.
  const at::Tensor x = torch::tensor({INFINITY, -INFINITY, NAN, 1.0F});
  const at::Tensor saturated = quantize_dequantize(x, qparams_of(x, FloatScheme{}));
  EXPECT_EQ(saturated[0].item<float>(), 448.0F);
  EXPECT_TRUE(std::isnan(saturated[2].item<float>()));
  EXPECT_EQ(saturated[3].item<float>(), 1.0F);
  EXPECT_EQ(quantize_dequantize(x, qparams_of(x, FloatScheme{"e5m2"}))[1].item<float>(), -INFINITY);
}

TEST(FloatScheme, KeepsSmallValuesThatIntegersLose) {
  torch::manual_seed(3);
  const at::Tensor x = at::cat({torch::randn({1000}) * 1e-3, torch::tensor({1.0F})});
  const double fp8 = quantization_error(x, quantize_dequantize(x, qparams_of(x, FloatScheme{}))).mse;
  const double int8 =
      quantization_error(x, quantize_dequantize(x, qparams_of(x, Scheme{.is_signed = true}))).mse;
  EXPECT_LT(fp8, int8 / 100);
}

TEST(FloatScheme, RefusesWrongArguments) {
  const FloatQParams params = qparams_of(torch::ones({2, 4}), {"e5m2", PerToken{}});
  EXPECT_THROW(quantize(torch::ones({3, 4}), params), Error);
  EXPECT_THROW(quantize(torch::ones({2, 4}, at::kInt), params), Error);
  EXPECT_THROW(dequantize(torch::ones({2, 4}), params), Error);
  EXPECT_THROW(qparams_of(torch::zeros({0}), FloatScheme{}), Error);
}

}  // namespace
}  // namespace ulp::quant
