#include "ulp/formats/block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ulp/base/error.h"

namespace {

using namespace ulp::formats;

const Cast kNearest[] = {Cast{}};
constexpr float kFloatInf = std::numeric_limits<float>::infinity();

// Numbers with exponents all over a block's range, from a linear congruential sequence.
std::vector<float> sample(size_t n, uint32_t seed, int exponents) {
  std::vector<float> out;
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float mantissa = 1 + static_cast<float>(seed >> 9 & 0xffff) / 65536;
    const float value = std::ldexp(mantissa, static_cast<int>(seed >> 26) % exponents);
    out.push_back(seed & 0x100 ? -value : value);
  }
  return out;
}

// The specification's own words: the nearest of all element values, times the shared power of two.
float nearest_element(const Format& element, double x) {
  double best = 0;
  for (uint64_t code = 0; code <= element.max_code(); ++code) {
    const double value = decode(element, code), distance = std::fabs(std::fabs(x) - value);
    const double before = std::fabs(std::fabs(x) - best);
    if (distance < before || (distance == before && code % 2 == 0)) best = value;
  }
  return static_cast<float>(std::copysign(best, x));
}

TEST(Block, TheTableIsTheSpecifications) {
  struct Published {
    const char* name;
    int size, element_exponent;
    double element_max, bits;
  };
  const Published published[] = {{"mxfp8_e4m3", 32, 8, 448, 8.25}, {"mxfp8_e5m2", 32, 15, 57344, 8.25},
                                 {"mxfp6_e2m3", 32, 2, 7.5, 6.25}, {"mxfp6_e3m2", 32, 4, 28, 6.25},
                                 {"mxfp4", 32, 2, 6, 4.25},        {"nvfp4", 16, 2, 6, 4.5}};
  for (const Published& row : published) {
    const BlockFormat& format = find_block(row.name);
    EXPECT_EQ(format.size, row.size) << row.name;
    EXPECT_EQ(std::ilogb(format.element().max()), row.element_exponent) << row.name;
    EXPECT_EQ(format.element().max(), row.element_max) << row.name;
    EXPECT_EQ(format.bits_per_value(), row.bits) << row.name;
    EXPECT_EQ(format.tensor_scale, std::string(row.name) == "nvfp4");
  }
  EXPECT_EQ(all_blocks().size(), std::size(published)) << "a format without published figures";
}

TEST(Block, MxFollowsTheSpecification) {
  for (const BlockFormat& format : all_blocks()) {
    if (format.tensor_scale) continue;
    for (uint32_t seed = 1; seed <= 40; ++seed) {
      const std::vector<float> x = sample(32, seed, 1 + static_cast<int>(seed % 12));
      double amax = 0;
      for (float v : x) amax = std::max(amax, std::fabs(double{v}));
      const double shared = std::exp2(std::floor(std::log2(amax)) - std::ilogb(format.element().max()));
      const Block block = quantize_block(format, x, 1, kNearest);
      EXPECT_EQ(decode(format.scale(), block.scale), shared);
      const std::vector<float> back = dequantize_block(format, block);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(back[i], nearest_element(format.element(), x[i] / shared) * shared)
            << format.name << " " << x[i];
      }
    }
  }
}

TEST(Block, MxWorkedByHand) {
  // amax 7 -> 2^2, less the 2 of e2m1: scale 1. 7 saturates to 6, 2.5 is a tie and goes to the even 2.
  const BlockFormat& mxfp4 = find_block("mxfp4");
  const Block block = quantize_block(mxfp4, std::vector<float>{7, 2.5F, -0.2F, 0.25F, -6, 1.3F}, 1, kNearest);
  EXPECT_EQ(block.scale, 127);
  EXPECT_EQ(block.codes, (std::vector<uint8_t>{0x7, 0x4, 0x8, 0x0, 0xf, 0x3}));
  EXPECT_EQ(dequantize_block(mxfp4, block), (std::vector<float>{6, 2, -0.0F, 0, -6, 1.5F}));
  // A block of e4m3 reaches 448 times its scale: amax 1 gives 2^-8, and 1 is 256 * 2^-8.
  EXPECT_EQ(quantize_block(find_block("mxfp8_e4m3"), std::vector<float>{1}, 1, kNearest).scale, 127 - 8);
}

TEST(Block, MxAtTheEndsOfTheScale) {
  const BlockFormat& format = find_block("mxfp8_e5m2");
  const std::vector<float> tiny = {0x1p-149F, 0x1p-140F, -0x1.8p-141F};
  const Block small = quantize_block(format, tiny, 1, kNearest);
  EXPECT_EQ(small.scale, 0) << "2^-127 is the smallest scale";
  EXPECT_EQ(dequantize_block(format, small), (std::vector<float>{0, 0x1p-140F, -0x1.8p-141F}));
  const std::vector<float> huge = {3.4e38F, 1e38F};
  const Block large = quantize_block(format, huge, 1, kNearest);
  EXPECT_EQ(large.scale, 127 + 127 - 15);
  EXPECT_NEAR(dequantize_block(format, large)[1] / 1e38F, 1, 0.125);
  EXPECT_EQ(quantize_block(format, std::vector<float>(32, 0.0F), 1, kNearest).scale, 0);
  EXPECT_EQ(dequantize_block(format, {0, {0, 0x80}}), (std::vector<float>{0, -0.0F}));
}

TEST(Block, OneBadValueMakesTheBlockNan) {
  for (const BlockFormat& format : all_blocks()) {
    for (float bad : {kFloatInf, -kFloatInf, std::nanf("")}) {
      const Block block = quantize_block(format, std::vector<float>{1, bad, 2}, 1, kNearest);
      EXPECT_EQ(block.scale, format.scale().nan_code()) << format.name;
      for (float value : dequantize_block(format, block)) EXPECT_TRUE(std::isnan(value)) << format.name;
    }
  }
}

TEST(Block, Nvfp4HasTwoLevelsOfScale) {
  const BlockFormat& format = find_block("nvfp4");
  std::vector<float> x = sample(64, 3, 6);
  x[20] = 100;
  const float tensor = tensor_scale(format, x);
  EXPECT_EQ(tensor, 100.0F / (448 * 6)) << "the largest value of the tensor becomes 448 * 6";
  for (size_t at = 0; at < x.size(); at += 16) {
    const std::vector<float> part(x.begin() + static_cast<long>(at), x.begin() + static_cast<long>(at) + 16);
    float amax = 0;
    for (float v : part) amax = std::max(amax, std::fabs(v));
    const Block block = quantize_block(format, part, tensor, kNearest);
    const float scale = nearest_element(format.scale(), amax / 6 / tensor);
    EXPECT_EQ(decode(format.scale(), block.scale), scale);
    const std::vector<float> back = dequantize_block(format, block, tensor);
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(back[i], nearest_element(format.element(), part[i] / (scale * tensor)) * (scale * tensor))
          << part[i];
    }
  }
}

TEST(Block, Nvfp4ScalesNeitherVanishNorDivideByZero) {
  const BlockFormat& format = find_block("nvfp4");
  EXPECT_EQ(tensor_scale(format, std::vector<float>{0, -0.0F}), 1);
  EXPECT_EQ(tensor_scale(format, std::vector<float>{kFloatInf, std::nanf(""), -2688}), 1);
  EXPECT_EQ(tensor_scale(format, std::vector<float>{0x1p-149F}), 0x1p-126F);
  EXPECT_EQ(tensor_scale(find_block("mxfp4"), std::vector<float>{5}), 1);
  // A block 2^-12 below the others: its scale would round to 0 and its values with it.
  const Block block = quantize_block(format, std::vector<float>{0x1p-8F, -0x1p-9F}, 1, kNearest);
  EXPECT_EQ(block.scale, 1);
  EXPECT_EQ(dequantize_block(format, block), (std::vector<float>{0x1p-8F, -0x1p-9F}));
  EXPECT_EQ(dequantize_block(format, quantize_block(format, std::vector<float>{0, -0.0F}, 1, kNearest)),
            (std::vector<float>{0, -0.0F}));
}

TEST(Block, StochasticElementsTakeTheirOwnBits) {
  const BlockFormat& format = find_block("mxfp4");
  const std::vector<float> x = {4, 2.5F, 2.5F};  // 2.5 lies in the middle of 2 and 3
  const std::vector<Cast> casts = {{Rounding::stochastic, {}, 0},
                                   {Rounding::stochastic, {}, 0x7fffffff},
                                   {Rounding::stochastic, {}, 0x80000000}};
  EXPECT_EQ(dequantize_block(format, quantize_block(format, x, 1, casts)), (std::vector<float>{4, 2, 3}));
}

TEST(Block, WrongSizesScalesAndNamesAreErrors) {
  const BlockFormat& mxfp4 = find_block("mxfp4");
  EXPECT_THROW(block_scale(mxfp4, {}), ulp::Error);
  EXPECT_THROW(block_scale(mxfp4, std::vector<float>(33)), ulp::Error);
  EXPECT_THROW(block_scale(mxfp4, std::vector<float>{1}, 2), ulp::Error);
  for (float bad : {0.0F, -1.0F, kFloatInf, std::nanf("")}) {
    EXPECT_THROW(block_scale(find_block("nvfp4"), std::vector<float>{1}, bad), ulp::Error);
    EXPECT_THROW(dequantize_block(find_block("nvfp4"), {1, {1}}, bad), ulp::Error);
  }
  EXPECT_THROW(quantize_block(mxfp4, std::vector<float>{1, 2, 3}, 1, std::vector<Cast>(2)), ulp::Error);
  try {
    find_block("mxfp5");
    FAIL();
  } catch (const ulp::Error& error) {
    const std::string what = error.what();
    for (const BlockFormat& format : all_blocks())
      EXPECT_NE(what.find(format.name), std::string::npos) << what;
    EXPECT_NE(what.find("'mxfp5'"), std::string::npos) << what;
  }
}

}  // namespace
