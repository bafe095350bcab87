#include "ulp/quant/scheme/round_trip.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "golden_data.h"

namespace ulp::quant {
namespace {

using ulp::test::error_of;

TEST(QParamsOf, EqualsChoosingFromTheExtremes) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({6, 5});
  const QParams whole = qparams_of(x, Scheme{}), expected = choose_qparams(x.min(), x.max(), Scheme{});
  EXPECT_TRUE(whole.scale.equal(expected.scale));
  EXPECT_TRUE(whole.zero_point.equal(expected.zero_point));
  const Scheme scheme{.is_signed = true, .mapping = Mapping::symmetric, .granularity = PerChannel{1}};
  EXPECT_TRUE(qparams_of(x, scheme).scale.equal(choose_qparams(x.amin(0), x.amax(0), scheme).scale));
  EXPECT_TRUE(qparams_of(x.to(at::kDouble), Scheme{}).scale.equal(expected.scale));
}

// Every code of every width comes back from the value it stands for.
TEST(QParamsOf, EveryCodeSurvivesTheRoundTrip) {
  for (int64_t bits = 2; bits <= 8; ++bits) {
    for (const bool is_signed : {false, true}) {
      for (const Mapping mapping : {Mapping::affine, Mapping::symmetric}) {
        for (const Range range : {Range::full, Range::restricted}) {
          const Scheme scheme{.bits = bits, .is_signed = is_signed, .mapping = mapping, .range = range};
          if (!is_signed && range == Range::restricted) continue;
          const QParams params = choose_qparams(torch::tensor(-1.3F), torch::tensor(2.1F), scheme);
          const at::Tensor codes = at::arange(scheme.qmin(), scheme.qmax() + 1, at::kInt);
          const at::Tensor values = dequantize(codes, params);
          EXPECT_TRUE(quantize(values, params).to(at::kInt).equal(codes)) << scheme.to_string();
          EXPECT_TRUE(quantize(at::zeros({1}), params).to(at::kInt).equal(params.zero_point))
              << "zero is exact";
          EXPECT_TRUE(quantize_dequantize(values, params).equal(values));
        }
      }
    }
  }
}

// Parameters from PyTorch's formulas (observer_test.cpp), values from its operators: equal for every
// distribution, number of bits and scheme, per tensor and per channel.
TEST(QuantizeDequantize, EqualsLibTorch) {
  for (const char* kind : {"uniform", "normal", "heavy", "cauchy", "one_sided", "negative", "huge", "tiny",
                           "constant", "zero", "spike"}) {
    const at::Tensor x = test::make(kind, 7, 1200).reshape({4, 300});
    for (int64_t bits = 2; bits <= 8; ++bits) {
      for (Scheme scheme :
           {Scheme{}, Scheme{.is_signed = true, .mapping = Mapping::symmetric},
            Scheme{.is_signed = true, .mapping = Mapping::symmetric, .range = Range::restricted},
            Scheme{.is_signed = true}, Scheme{.mapping = Mapping::symmetric}}) {
        scheme.bits = bits;
        const QParams whole = qparams_of(x, scheme);
        EXPECT_TRUE(quantize_dequantize(x, whole).equal(at::fake_quantize_per_tensor_affine(
            x, whole.scale, whole.zero_point, scheme.qmin(), scheme.qmax())))
            << kind << ' ' << scheme.to_string();
        for (const Granularity& granularity : {Granularity(PerChannel{1}), Granularity(PerToken{}),
                                               Granularity(PerGroup{75}), Granularity(PerBlock{2, 50})}) {
          scheme.granularity = granularity;
          const QParams parts = qparams_of(x, scheme);
          const at::Tensor rows = at::fake_quantize_per_channel_affine(
              to_rows(x, granularity).contiguous(), parts.scale.reshape(-1), parts.zero_point.reshape(-1), 0,
              scheme.qmin(), scheme.qmax());
          EXPECT_TRUE(quantize_dequantize(x, parts).equal(from_rows(rows, granularity, x.sizes())))
              << kind << ' ' << scheme.to_string();
        }
      }
    }
  }
}

TEST(QParamsOf, AllZeroChannelIsDefined) {
  const at::Tensor x = torch::tensor({{0.0F, 0.0F}, {1.0F, -2.0F}});
  const QParams params =
      qparams_of(x, Scheme{.is_signed = true, .mapping = Mapping::symmetric, .granularity = PerToken{}});
  EXPECT_EQ(params.scale[0].item<float>(), 0x1p-23F);
  EXPECT_TRUE(quantize_dequantize(x, params)[0].equal(x[0]));
}

TEST(QParamsOf, RefusesWhatHasNoRange) {
  EXPECT_NE(error_of([] {
              qparams_of(torch::tensor({1.0F, NAN, INFINITY, NAN}), Scheme{});
            }).find("2 NaN and 1 infinite"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              qparams_of(torch::zeros({0, 3}), Scheme{});
            }).find("at least one value"),
            std::string::npos);
  EXPECT_NE(error_of([] { qparams_of(torch::zeros({2}, at::kInt), Scheme{}); }).find("floating-point"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              qparams_of(torch::zeros({2, 2}), Scheme{.granularity = PerChannel{5}});
            }).find("a dimension 5"),
            std::string::npos);
  EXPECT_THROW(qparams_of(torch::zeros({2}), Scheme{.bits = 9}), Error);
}

TEST(QuantizationError, FollowsItsFormulas) {
  const at::Tensor x = torch::tensor({3.0F, -4.0F, 0.0F, 12.0F}),
                   y = torch::tensor({2.0F, -4.0F, 2.0F, 12.0F});
  const QuantError error = quantization_error(x, y);
  EXPECT_DOUBLE_EQ(error.mse, 5.0 / 4);
  EXPECT_DOUBLE_EQ(error.max_abs, 2.0);
  EXPECT_DOUBLE_EQ(error.sqnr_db, 10 * std::log10(169.0 / 5));
  EXPECT_DOUBLE_EQ(error.cosine, (6 + 16 + 144) / (13.0 * std::sqrt(168.0)));
}

TEST(QuantizationError, EdgesAreDefined) {
  const at::Tensor zero = torch::zeros({3}), one = torch::ones({3});
  EXPECT_EQ(quantization_error(one, one).sqnr_db, INFINITY);
  EXPECT_DOUBLE_EQ(quantization_error(one, one).cosine, 1);
  EXPECT_EQ(quantization_error(zero, zero).sqnr_db, INFINITY);
  EXPECT_EQ(quantization_error(zero, zero).cosine, 1);
  EXPECT_EQ(quantization_error(zero, one).sqnr_db, -INFINITY);
  EXPECT_EQ(quantization_error(zero, one).cosine, 0);
  EXPECT_DOUBLE_EQ(quantization_error(one, -one).cosine, -1);
  // Values whose squares leave float32.
  EXPECT_DOUBLE_EQ(quantization_error(one * 1e30, one * 2e30).sqnr_db, 0);
  EXPECT_THROW(quantization_error(one, torch::ones({4})), Error);
  EXPECT_THROW(quantization_error(torch::zeros({0}), torch::zeros({0})), Error);
  EXPECT_NE(error_of([&] { quantization_error(one, one * NAN); }).find("3 NaN"), std::string::npos);
}

// 6.02 dB a bit: noise of a uniform quantizer on evenly spread values is step^2 / 12.
TEST(QuantizationError, UniformNoiseGrowsSixDecibelsABit) {
  torch::manual_seed(2);
  const at::Tensor x = torch::rand({200000}) * 2 - 1;
  for (int64_t bits = 3; bits <= 8; ++bits) {
    const Scheme scheme{.bits = bits};
    const QuantError error = quantization_error(x, quantize_dequantize(x, qparams_of(x, scheme)));
    const double step = 2.0 / static_cast<double>(scheme.qmax());
    EXPECT_NEAR(error.mse, step * step / 12, step * step / 120) << bits;
    EXPECT_NEAR(error.sqnr_db, 20 * std::log10(static_cast<double>(scheme.qmax())), 0.2) << bits;
  }
}

}  // namespace
}  // namespace ulp::quant
