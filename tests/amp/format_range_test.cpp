// Shares told from exponent counts, against casting each value with the formats' own definition.
#include "ulp/amp/watch/format_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "ulp/base/error.h"
#include "ulp/formats/convert.h"

namespace ulp::amp {
namespace {

const SerialParallel kSerial;

kernels::ExponentStats count(const std::vector<float>& values, const FormatRange& range) {
  return kernels::exponent_stats(DataType::f32, values.data(), static_cast<int64_t>(values.size()),
                                 range.threshold(), kernels::Isa::portable, kSerial);
}

/// Casts every value times 2^exponent. What is larger than the largest number before and not below it after
/// the cast has overflowed.
Shares by_casting(const std::vector<float>& values, const formats::Format& format, int exponent) {
  double underflow = 0, subnormal = 0, overflow = 0, total = 0;
  for (const float value : values) {
    const double v = std::ldexp(std::fabs(static_cast<double>(value)), exponent);
    if (v == 0 || !std::isfinite(v)) continue;
    ++total;
    // To nearest even over an unbounded exponent range: one more binade than the format has.
    const double step = std::ldexp(1.0, std::ilogb(format.max()) - format.mantissa_bits);
    if (v >= format.max()) {
      overflow += std::nearbyint(v / step) * step > format.max() ? 1 : 0;
    } else if (formats::round_to_format(format, v) == 0) {
      ++underflow;
    } else if (v <= format.smallest_normal()) {
      ++subnormal;
    }
  }
  return {underflow / total, subnormal / total, overflow / total};
}

/// Magnitudes around everything special: thresholds of the format and all binades of fp32 near them.
std::vector<float> delicate(const formats::Format& format) {
  std::vector<float> out = {0.0F, -0.0F};
  std::mt19937 engine(5);
  std::uniform_real_distribution<float> draw(1.0F, 2.0F);
  for (int i = 0; i < 3000; ++i) out.push_back(std::ldexp(draw(engine), i % 80 - 45));
  const double half_step = std::ldexp(1.0, std::ilogb(format.max()) - format.mantissa_bits - 1);
  for (const double edge : {format.max(), format.max() + half_step, format.smallest_normal(),
                            format.smallest_subnormal(), format.smallest_subnormal() / 2}) {
    const auto at = static_cast<float>(edge);
    for (const float v : {at, std::nextafter(at, 0.0F), std::nextafter(at, 1e38F)}) {
      for (const float times : {0.25F, 0.5F, 1.0F, 2.0F, 4.0F, 1024.0F}) out.push_back(-v * times);
    }
  }
  return out;
}

class FormatRangeTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Formats, FormatRangeTest,
                         ::testing::Values("fp16", "bf16", "fp8_e4m3fn", "fp8_e5m2", "fp8_e4m3fnuz",
                                           "fp8_e5m2fnuz"));

TEST_P(FormatRangeTest, SharesAreThoseOfCastingEachValue) {
  const formats::Format& format = formats::find(GetParam());
  const FormatRange range(format);
  const auto values = delicate(format);
  const auto stats = count(values, range);
  for (const int exponent : {-30, -9, -1, 0, 1, 2, 7, 16, 24}) {
    const Shares got = range.shares(stats, exponent), expected = by_casting(values, format, exponent);
    EXPECT_EQ(got.underflow, expected.underflow) << exponent;
    EXPECT_EQ(got.subnormal, expected.subnormal) << exponent;
    EXPECT_EQ(got.overflow, expected.overflow) << exponent;
  }
}

TEST(FormatRange, KnowsTheEdgesOfFp16) {
  const FormatRange range(formats::find("fp16"));
  const auto shares = [&](float value) { return range.shares(count({value}, range)); };
  EXPECT_EQ(shares(std::ldexp(1.0F, -25)).underflow, 1);  // a tie, to even
  EXPECT_EQ(shares(std::nextafter(std::ldexp(1.0F, -25), 1.0F)).underflow, 0);
  EXPECT_EQ(shares(std::nextafter(std::ldexp(1.0F, -25), 1.0F)).subnormal, 1);
  EXPECT_EQ(shares(65520.0F).overflow, 1);  // a tie, to even
  EXPECT_EQ(shares(std::nextafter(65520.0F, 0.0F)).overflow, 0);
}

TEST(FormatRange, HeadroomIsInBinades) {
  const FormatRange range(formats::find("fp16"));
  EXPECT_DOUBLE_EQ(range.headroom(count({65504.0F}, range)), 0);
  EXPECT_DOUBLE_EQ(range.headroom(count({65504.0F / 16, 1.0F}, range), 3), 1);
  EXPECT_EQ(range.headroom(count({0.0F}, range)), std::numeric_limits<double>::infinity());
}

TEST(FormatRange, AdvisesTheLargestScaleThatLeavesTheMargin) {
  const FormatRange range(formats::find("fp16"));
  const auto stats = count({1e-3F, 1e-20F}, range);
  const int advised = range.advise(stats, 2);
  EXPECT_LE(1e-3 * std::ldexp(1.0, advised), 65504.0 / 4);
  EXPECT_GT(1e-3 * std::ldexp(1.0, advised + 1), 65504.0 / 4);
  // Values that overflow as they are get a scale below 1.
  EXPECT_LT(range.advise(count({1e6F}, range), 0), 0);
  EXPECT_LE(std::ldexp(1e6, range.advise(count({1e6F}, range), 0)), 65504.0);
}

TEST(FormatRange, AdvisesNoMoreThanLetsNothingUnderflow) {
  const FormatRange fp16(formats::find("fp16")), bf16(formats::find("bf16"));
  const std::vector<float> values = {1e-6F, 3e-9F};
  const int advised = fp16.advise(count(values, fp16), 2);
  EXPECT_EQ(fp16.shares(count(values, fp16), advised).underflow, 0);
  EXPECT_GT(fp16.shares(count(values, fp16), advised - 1).underflow, 0);
  EXPECT_EQ(bf16.advise(count(values, bf16), 2), 0);
  EXPECT_EQ(fp16.advise(count({}, fp16), 2), 0);
}

TEST(FormatRange, RefusesFormatsWithoutAnExponentRange) {
  EXPECT_THROW(FormatRange{formats::find("int8")}, Error);
  EXPECT_THROW(FormatRange{formats::find("e8m0")}, Error);
}

TEST(FormatRange, ScaleExponentRoundsToAPowerOfTwo) {
  EXPECT_EQ(scale_exponent(65536), 16);
  EXPECT_EQ(scale_exponent(0.125), -3);
  EXPECT_EQ(scale_exponent(3000), 12);
  for (const double bad : {0.0, -1.0, static_cast<double>(INFINITY), std::nan("")}) {
    EXPECT_THROW(scale_exponent(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace ulp::amp
