// Stochastic rounding: goes up for exactly the share of all 2^32 random words that the value asks for.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "formats/infinity.h"
#include "ulp/formats/convert.h"
#include "ulp/formats/random_bits.h"

namespace {

using namespace ulp::formats;

using ulp::test::kInf;

Cast draw(uint64_t random) {
  return {Rounding::stochastic, std::nullopt, static_cast<uint32_t>(random)};
}

// `share` of 2^32 words send x to `high`, all others to `low`; checks the two words at the border and the
// ends.
void expect_share(const Format& format, double x, double low, double high, uint64_t share) {
  SCOPED_TRACE(std::string(format.name) + " " + std::to_string(x));
  const uint64_t all = uint64_t{1} << 32;
  if (share < all) {
    EXPECT_EQ(round_to_format(format, x, draw(0)), low);
    EXPECT_EQ(round_to_format(format, x, draw(all - share - 1)), low);
  }
  if (share > 0) {
    EXPECT_EQ(round_to_format(format, x, draw(all - share)), high);
    EXPECT_EQ(round_to_format(format, x, draw(all - 1)), high);
  }
}

/// All that are narrower than fp32; binary, which has no gap above 0, has a test of its own.
std::vector<std::string> narrow_formats() {
  std::vector<std::string> names;
  for (const Format& format : all()) {
    if (format.bits() < 32 && format.kind != Kind::binary) names.emplace_back(format.name);
  }
  return names;
}

class Stochastic : public ::testing::TestWithParam<std::string> {};

TEST_P(Stochastic, EveryGapIsDividedInProportion) {
  const Format& format = find(GetParam());
  const uint64_t step = format.bits() > 8 ? 97 : 1;
  for (uint64_t code = 0; code < format.max_code(); code += step) {
    const double low = decode(format, code), high = decode(format, code + 1);
    EXPECT_EQ(round_to_format(format, low, draw(0xffffffff)), low) << "what the format holds stays";
    for (uint64_t share : {uint64_t{1} << 31, uint64_t{1} << 30, uint64_t{3} << 24, uint64_t{0xfff00000}}) {
      const double x = low + (high - low) * std::ldexp(static_cast<double>(share), -32);
      expect_share(format, x, low, high, share);
      if (format.is_signed()) expect_share(format, -x, -low, -high, share);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Stochastic, ::testing::ValuesIn(narrow_formats()),
                         [](const auto& info) { return info.param; });

TEST(StochasticEdges, WhatIsFarBelowTheSmallestNumber) {
  const Format& fp16 = find("fp16");
  expect_share(fp16, 0x1p-25, 0, 0x1p-24, uint64_t{1} << 31);
  expect_share(fp16, 0x1p-56, 0, 0x1p-24, 1);
  expect_share(fp16, 0x1p-57, 0, 0x1p-24, 0);
  expect_share(fp16, 0x1p-149, 0, 0x1p-24, 0);
  expect_share(fp16, 5e-324, 0, 0x1p-24, 0);
  EXPECT_TRUE(std::signbit(round_to_format(fp16, -0.0, draw(0xffffffff))));
}

TEST(StochasticEdges, PastTheLargestNumber) {
  expect_share(find("fp16"), 65504 + 16, 65504, kInf, uint64_t{1} << 31);
  expect_share(find("fp16"), 65536, 65504, kInf, uint64_t{1} << 32);
  expect_share(find("e4m3fn"), 464, 448, 448, uint64_t{1} << 31);
  EXPECT_TRUE(std::isnan(round_to_format(find("e5m2fnuz"), 60000, draw(0xffffffff))));
  EXPECT_EQ(round_to_format(find("bf16"), -kInf, draw(7)), -kInf);
  EXPECT_TRUE(std::isnan(round_to_format(find("bf16"), std::nan(""), draw(7))));
  EXPECT_EQ(round_to_format(find("int8"), 127.5, draw(0xffffffff)), 127);
  EXPECT_EQ(round_to_format(find("int8"), -128.5, draw(0xffffffff)), -128);
}

TEST(StochasticEdges, BinaryHasTheExpectationOfTheValue) {
  const Format& binary = find("binary");
  expect_share(binary, 0, -1, 1, uint64_t{1} << 31);
  expect_share(binary, 0.5, -1, 1, uint64_t{3} << 30);
  expect_share(binary, -0.75, -1, 1, uint64_t{1} << 29);
  for (double x : {1.0, 1.5, kInf}) EXPECT_EQ(round_to_format(binary, x, draw(0)), 1);
  for (double x : {-1.0, -1.5, -kInf}) EXPECT_EQ(round_to_format(binary, x, draw(0xffffffff)), -1);
  EXPECT_EQ(round_to_format(binary, std::nan(""), draw(0)), 1);
}

// A sum that sticks in bf16 with nearest-even keeps its expectation.
TEST(StochasticEdges, SmallUpdatesAreNotLost) {
  const Format& bf16 = find("bf16");
  constexpr int kSteps = 4000;
  double nearest = 1, stochastic = 1;
  for (uint64_t i = 0; i < kSteps; ++i) {
    nearest = round_to_format(bf16, nearest + 0.001);
    stochastic = round_to_format(bf16, stochastic + 0.001, draw(random_bits({5, 0}, i)));
  }
  EXPECT_EQ(nearest, 1);
  // Each step has a variance of at most (step of the format)^2 / 4 = (2^-5)^2 / 4 below 8; three deviations.
  EXPECT_NEAR(stochastic, 5, 3 * std::sqrt(kSteps) * 0x1p-6);
}

}  // namespace
