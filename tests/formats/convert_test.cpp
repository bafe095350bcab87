#include "ulp/formats/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "formats/infinity.h"
#include "ulp/base/error.h"

namespace {

using namespace ulp::formats;

using ulp::test::kInf;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Reference for decoding: walks up from zero, adding the step of the binade, without looking at any bit of a
// code. Element i is the value of magnitude code i; it stops at the format's largest finite number.
std::vector<double> magnitudes(const Format& format) {
  std::vector<double> values;
  if (format.kind == Kind::scale) {
    for (int i = -127; i <= 127; ++i) values.push_back(std::exp2(i));
    return values;
  }
  const int per_binade = 1 << format.mantissa_bits;
  double step = format.smallest_subnormal();
  double value = 0;
  while (true) {
    // The subnormals and the first binade share one step.
    const int count = values.empty() ? 2 * per_binade : per_binade;
    for (int i = 0; i < count; ++i, value += step) {
      if (value > format.max()) return values;
      values.push_back(value);
    }
    step *= 2;
  }
}

// Reference for encoding: the nearest of all values, ties to the even code, by search.
size_t nearest(const std::vector<double>& values, double x, bool ties_up) {
  const auto above = std::lower_bound(values.begin(), values.end(), x);
  if (above == values.end()) return values.size() - 1;
  const size_t high = static_cast<size_t>(above - values.begin());
  if (*above == x || high == 0) return high;
  const double to_low = x - values[high - 1], to_high = values[high] - x;  // exact: both within one binade
  if (to_low != to_high) return to_low < to_high ? high - 1 : high;
  if (ties_up) return high;
  return high % 2 == 0 ? high : high - 1;
}

/// The formats whose codes can all be tried: those with an exponent, up to 16 bits.
std::vector<std::string> small_formats() {
  std::vector<std::string> names;
  for (const Format& format : all()) {
    if (format.exponent_bits > 0 && format.bits() <= 16) names.emplace_back(format.name);
  }
  return names;
}

class EveryCode : public ::testing::TestWithParam<std::string> {
 protected:
  const Format& format_ = find(GetParam());
  const std::vector<double> values_ = magnitudes(format_);
};

TEST_P(EveryCode, DecodesToTheReferenceValue) {
  ASSERT_EQ(values_.size(), format_.max_code() + 1);
  for (uint64_t code = 0; code <= format_.max_code(); ++code) {
    ASSERT_EQ(decode(format_, code), values_[code]) << format_.name << " code " << code;
    if (!format_.is_signed()) continue;
    const double negative = decode(format_, code | format_.sign_mask());
    if (code == 0 && format_.specials == Specials::nan_for_neg_zero) {
      ASSERT_TRUE(std::isnan(negative));
    } else {
      ASSERT_EQ(negative, -values_[code]);
      ASSERT_TRUE(std::signbit(negative));
    }
  }
  for (uint64_t code = format_.max_code() + 1; code <= format_.magnitude_mask(); ++code) {
    const bool infinity = format_.has_infinity() && code == format_.infinity_code();
    ASSERT_EQ(std::isinf(decode(format_, code)), infinity) << code;
    ASSERT_EQ(std::isnan(decode(format_, code)), !infinity) << code;
    ASSERT_EQ(std::signbit(decode(format_, code | format_.sign_mask())), format_.is_signed()) << code;
  }
}

TEST_P(EveryCode, SurvivesARoundTrip) {
  for (uint64_t code = 0; code <= (format_.sign_mask() | format_.magnitude_mask()); ++code) {
    const double value = decode(format_, code);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(decode(format_, encode(format_, value))));
    } else if (std::isinf(value)) {
      // e4m3's own cast overflows to inf, so infinities survive wherever they exist.
      ASSERT_EQ(encode(format_, value), code);
    } else {
      ASSERT_EQ(encode(format_, value), code) << format_.name << " " << value;
      ASSERT_EQ(encode(format_, value, {Rounding::toward_zero}), code) << format_.name << " " << value;
    }
  }
}

// Between each pair of neighbours: just above, before the middle, the middle, after the middle, just below.
TEST_P(EveryCode, NeighbourhoodsRoundAsTheSearchSays) {
  const bool ties_up = format_.kind == Kind::scale;
  for (size_t i = 0; i + 1 < values_.size(); ++i) {
    const double low = values_[i], high = values_[i + 1], middle = low + (high - low) / 2;
    for (double x : {std::nextafter(low, high), std::nextafter(middle, low), middle,
                     std::nextafter(middle, high), std::nextafter(high, low)}) {
      ASSERT_EQ(encode(format_, x), nearest(values_, x, ties_up))
          << format_.name << " " << x << " from code " << i;
      ASSERT_EQ(encode(format_, x, {Rounding::toward_zero}), i) << format_.name << " " << x;
      if (!format_.is_signed()) continue;
      const double rounded = round_to_format(format_, -x);
      ASSERT_EQ(rounded, -values_[nearest(values_, x, ties_up)]) << format_.name << " " << -x;
    }
  }
}

TEST_P(EveryCode, PastTheLargestNumberTheRuleDecides) {
  const double max = format_.max();
  const double step = max - values_[values_.size() - 2];
  const bool odd_max = format_.max_code() % 2 == 1 || format_.kind == Kind::scale;
  const double tie = max + step / (format_.kind == Kind::scale ? 1 : 2);
  EXPECT_EQ(round_to_format(format_, std::nextafter(tie, 0)), max);
  const auto expect_overflowed = [&](double x) {
    const double got = round_to_format(format_, x);
    if (format_.overflow == Overflow::saturate) {
      EXPECT_EQ(got, max) << x;
    } else if (format_.overflow == Overflow::to_infinity) {
      EXPECT_EQ(got, kInf) << x;
    } else {
      EXPECT_TRUE(std::isnan(got)) << x;
    }
  };
  for (double x : {std::nextafter(tie, kInf), 4 * max, kInf}) expect_overflowed(x);
  if (odd_max) {
    expect_overflowed(tie);
  } else {
    EXPECT_EQ(round_to_format(format_, tie), max);
  }
  EXPECT_EQ(round_to_format(format_, 4 * max, {Rounding::toward_zero}), max);
  EXPECT_EQ(round_to_format(format_, 4 * max, {Rounding::nearest_even, Overflow::saturate}), max);
}

TEST_P(EveryCode, BitsAboveTheFormatAreAnError) {
  EXPECT_THROW(decode(format_, (format_.sign_mask() | format_.magnitude_mask()) + 1), ulp::Error);
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryCode, ::testing::ValuesIn(small_formats()),
                         [](const auto& info) { return info.param; });

TEST(Convert, Fp32AndTf32AgreeWithTheHardware) {
  const Format &fp32 = find("fp32"), &tf32 = find("tf32");
  uint32_t state = 1;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = std::bit_cast<float>(state);
    if (std::isnan(value)) continue;
    ASSERT_EQ(encode(fp32, value), state);
    ASSERT_EQ(decode(fp32, state), value);
    const double between = value * (1 + 0x1p-25 * (state >> 8 & 3));
    ASSERT_EQ(round_to_format(fp32, between), static_cast<double>(static_cast<float>(between))) << between;
    // TF32 is fp32 with 13 bits rounded away: add half of the last place less one, plus the last kept bit,
    // and cut.
    const uint32_t rounded = (state + 0xfff + (state >> 13 & 1)) >> 13;
    if (!std::isinf(value)) {
      ASSERT_EQ(encode(tf32, value), rounded) << value;
    }
  }
}

TEST(Convert, Fp64IsTheIdentity) {
  const Format& fp64 = find("fp64");
  for (double x : {0.1, -0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -kInf, 3.0}) {
    EXPECT_EQ(encode(fp64, x), std::bit_cast<uint64_t>(x));
    EXPECT_EQ(decode(fp64, std::bit_cast<uint64_t>(x)), x);
  }
  EXPECT_TRUE(std::isnan(round_to_format(fp64, kNan)));
}

TEST(Convert, IntegersRoundToEvenAndSaturate) {
  const Format& int8 = find("int8");
  for (int value = -128; value <= 127; ++value) {
    EXPECT_EQ(encode(int8, value), static_cast<uint8_t>(value));
    EXPECT_EQ(decode(int8, static_cast<uint8_t>(value)), value);
  }
  const double cases[][2] = {{0.5, 0},       {1.5, 2},     {-2.5, -2},    {127.49, 127}, {127.5, 127},
                             {-128.6, -128}, {1e300, 127}, {-kInf, -128}, {kNan, 0}};
  for (const auto& [x, expected] : cases) EXPECT_EQ(round_to_format(int8, x), expected) << x;
  EXPECT_EQ(round_to_format(int8, -1.9, {Rounding::toward_zero}), -1);
  EXPECT_EQ(round_to_format(find("int4"), 9), 7);
  EXPECT_EQ(encode(find("int4"), -1), 0xfu);
  EXPECT_EQ(round_to_format(find("int2"), -5), -2);
}

TEST(Convert, KnownCodes) {
  struct Known {
    const char* format;
    double value;
    uint64_t code;
  };
  const Known known[] = {
      {"fp16", 1.0, 0x3c00},
      {"fp16", 65504, 0x7bff},
      {"fp16", 65519.99, 0x7bff},
      {"fp16", 65520, 0x7c00},
      {"fp16", 0x1p-24, 0x0001},
      {"fp16", 0x1p-25, 0x0000},
      {"fp16", -0x1.8p-25, 0x8001},
      {"fp16", 0x1p-14, 0x0400},
      {"fp16", 0.1, 0x2e66},
      {"fp16", -0.0, 0x8000},
      {"fp16", kNan, 0x7e00},
      {"fp16", -kInf, 0xfc00},
      {"bf16", 1.0, 0x3f80},
      {"bf16", 0.1, 0x3dcd},
      {"bf16", 1.00390625, 0x3f80},
      {"bf16", 1.01171875, 0x3f82},
      {"bf16", kNan, 0x7fc0},
      {"bf16", 3.4e38, 0x7f80},
      {"bf16", 0x1p-133, 0x0001},
      {"bf16", 0x1p-134, 0x0000},
      {"fp8_e4m3fn", 448, 0x7e},
      {"fp8_e4m3fn", kInf, 0x7e},
      {"fp8_e4m3fn", -1e9, 0xfe},
      {"fp8_e4m3fn", kNan, 0x7f},
      {"fp8_e4m3", 240, 0x77},
      {"fp8_e4m3", 248, 0x78},
      {"fp8_e5m2", 61440, 0x7c},
      {"fp8_e5m2", 61439, 0x7b},
      {"fp8_e4m3fnuz", -0.0, 0x00},
      {"fp8_e4m3fnuz", 1e9, 0x80},
      {"fp8_e4m3fnuz", -1e-9, 0x00},
      {"e8m0", 1, 127},
      {"e8m0", 1.5, 128},
      {"e8m0", 3, 129},
      {"e8m0", 0, 0},
      {"e8m0", -2, 128},
      {"e8m0", kInf, 255},
      {"e8m0", 1.4 * 0x1p-127, 0},
      {"fp6_e2m3", 7.5, 0x1f},
      {"fp6_e2m3", -kInf, 0x3f},
      {"fp6_e3m2", 28, 0x1f},
      {"fp6_e3m2", 0.0625, 0x01},
      {"fp4_e2m1", 0.5, 0x1},
      {"fp4_e2m1", -6, 0xf},
      {"fp4_e2m1", 5, 0x6},
      {"fp4_e2m1", kNan, 0x0},
      {"fp4_e2m1", -0.0, 0x8},
      {"binary", 0.25, 0},
      {"binary", -0.0, 0},
      {"binary", -1e-300, 1},
      {"binary", kNan, 0},
  };
  for (const Known& row : known) {
    EXPECT_EQ(encode(find(row.format), row.value), row.code) << row.format << " " << row.value;
  }
}

TEST(Convert, AnOverflowRuleTheFormatCannotExpressIsAnError) {
  EXPECT_THROW(encode(find("e4m3fn"), 1, {Rounding::nearest_even, Overflow::to_infinity}), ulp::Error);
  EXPECT_THROW(encode(find("int8"), 1, {Rounding::nearest_even, Overflow::to_nan}), ulp::Error);
  EXPECT_TRUE(std::isnan(round_to_format(find("e4m3fn"), 1e9, {Rounding::nearest_even, Overflow::to_nan})));
}

// The worked examples of the mixed-precision articles.
TEST(Convert, Fp16SwallowsSmallUpdates) {
  const Format& fp16 = find("fp16");
  EXPECT_EQ(round_to_format(fp16, 1 + 0.0001), 1);
  EXPECT_EQ(round_to_format(fp16, 1 + 0x1p-11), 1) << "a ratio of 2^-11 is a tie and goes to even";
  EXPECT_GT(round_to_format(fp16, 1 + 0x1.01p-11), 1);
  EXPECT_EQ(round_to_format(fp16, 0x1p-25), 0);
  EXPECT_EQ(round_to_format(fp16, 0x1p-24), 0x1p-24);
  EXPECT_NEAR(fp16.smallest_subnormal(), 6e-8, 0.5e-9);
}

TEST(Convert, Fp16SumOf4096Times16Overflows) {
  const Format &fp16 = find("fp16"), &fp32 = find("fp32");
  double in_fp16 = 0, in_fp32 = 0;
  for (int i = 0; i < 4096; ++i) {
    in_fp16 = round_to_format(fp16, in_fp16 + 16);
    in_fp32 = round_to_format(fp32, in_fp32 + 16);
  }
  EXPECT_EQ(in_fp32, 65536);
  EXPECT_EQ(round_to_format(fp16, in_fp32), kInf);
  // Added one by one in fp16 the sum sticks where 16 is half of the last place.
  EXPECT_EQ(in_fp16, 32768);
}

}  // namespace
