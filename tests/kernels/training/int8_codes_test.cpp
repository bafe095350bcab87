// Matrices of floats as int8 codes on every instruction set, against the definition in plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/training/int8_quantizers.h"

namespace ulp::kernels {
namespace {

using formats::RandomKey;

class Int8CodesTest : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(All, Int8CodesTest, ::testing::ValuesIn(available_isas()), test::isa_name);

constexpr Int8Scales kAll[] = {Int8Scales::rows, Int8Scales::columns, Int8Scales::tensor, Int8Scales::blocks};

struct Codes {
  std::vector<uint32_t> scale;  // bits
  std::vector<int8_t> codes, transposed;
  bool operator==(const Codes&) const = default;
};

int64_t scale_index(Int8Scales scales, int64_t r, int64_t c, int64_t columns) {
  switch (scales) {
    case Int8Scales::rows:
      return r;
    case Int8Scales::columns:
      return c;
    case Int8Scales::tensor:
      return 0;
    case Int8Scales::blocks:
      break;
  }
  return r / 32 * ((columns + 31) / 32) + c / 32;
}

/// One number, as the header says.
int8_t code_of(float x, float scale, const std::optional<RandomKey>& key, uint64_t index) {
  const float v = x * (1.0F / scale);
  if (std::isnan(scale)) return 0;
  const float inside = std::fmin(std::fmax(v, -127.0F), 127.0F);
  if (!key) return static_cast<int8_t>(std::nearbyint(inside));
  const float below = std::floor(inside);
  const float chance = static_cast<float>(formats::random_bits(*key, index) >> 8) * 0x1p-24F;
  return static_cast<int8_t>(below + (chance < inside - below ? 1.0F : 0.0F));
}

Codes plainly(const std::vector<float>& x, int64_t rows, int64_t columns, Int8Scales scales,
              const std::optional<RandomKey>& key) {
  std::vector<float> most(static_cast<size_t>(int8_scale_count(scales, rows, columns)));
  std::vector<bool> finite(most.size(), true);
  const auto group = [&](int64_t r, int64_t c) {
    return static_cast<size_t>(scale_index(scales, r, c, columns));
  };
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const float v = x[static_cast<size_t>(r * columns + c)];
      most[group(r, c)] = std::fmax(most[group(r, c)], std::fabs(v));
      if (!std::isfinite(v)) finite[group(r, c)] = false;
    }
  }
  Codes out;
  std::vector<float> scale;
  for (size_t i = 0; i < most.size(); ++i) {
    scale.push_back(most[i] == 0 ? 1.0F : std::fmax(most[i] / 127.0F, 0x1p-126F));
    if (!finite[i]) scale[i] = std::numeric_limits<float>::quiet_NaN();
    out.scale.push_back(float_to_bits(scale[i]));
  }
  out.codes.resize(x.size()), out.transposed.resize(x.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const auto index = static_cast<uint64_t>(r * ((columns + 63) / 64 * 64) + c);
      const int8_t code = code_of(x[static_cast<size_t>(r * columns + c)], scale[group(r, c)], key, index);
      out.codes[static_cast<size_t>(r * columns + c)] = code;
      out.transposed[static_cast<size_t>(c * rows + r)] = code;
    }
  }
  return out;
}

Codes quantized(DataType type, const void* data, int64_t rows, int64_t columns, Int8Scales scales,
                const std::optional<RandomKey>& key, Isa isa, int workers) {
  test::Guarded<float> scale(int8_scale_count(scales, rows, columns));
  test::Guarded<int8_t> codes(rows * columns), transposed(rows * columns), alone(rows * columns);
  const FloatMatrix matrix{type, data, rows, columns};
  const test::ThreadParallel parallel(workers);
  int8_quantize(matrix, scales, {scale.data(), codes.data(), transposed.data()}, key, isa, parallel);
  // Codes that nobody wants change nothing.
  int8_quantize(matrix, scales, {scale.data(), nullptr, alone.data()}, key, isa, parallel);
  EXPECT_EQ(alone.values(), transposed.values()) << to_string(isa);
  int8_transpose(codes.data(), rows, columns, alone.data(), isa, parallel);
  EXPECT_EQ(alone.values(), transposed.values()) << to_string(isa);
  EXPECT_TRUE(scale.intact() && codes.intact() && transposed.intact() && alone.intact()) << to_string(isa);
  Codes out{{}, codes.values(), transposed.values()};
  for (const float s : scale.values()) out.scale.push_back(float_to_bits(s));
  return out;
}

/// Codes of scales that are NaN, taken out.
Codes meaningful(Codes all, int64_t rows, int64_t columns, Int8Scales scales) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const auto scale = static_cast<size_t>(scale_index(scales, r, c, columns));
      if (!std::isnan(bits_to_float(all.scale[scale]))) continue;
      all.codes[static_cast<size_t>(r * columns + c)] = all.transposed[static_cast<size_t>(c * rows + r)] = 0;
    }
  }
  return all;
}

/// Numbers of sizes far apart, ties, zeros of both signs; a block of zeros.
std::vector<float> of_all_sizes(int64_t rows, int64_t columns) {
  std::vector<float> x = test::random_floats(rows * columns, 7, -3, 3);
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % 7 == 3) x[i] = std::ldexp(x[i], static_cast<int>(i % 50) - 25);
    if (i % 11 == 5) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
    if (i % columns < 32 && i / columns < 32 && rows > 40) x[i] = 0.0F;
  }
  return x;
}

TEST_P(Int8CodesTest, AreWhatTheDefinitionSays) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 3}, {70, 33}, {64, 64}, {33, 200}}) {
    std::vector<float> x = of_all_sizes(rows, columns);
    std::vector<uint16_t> narrow;
    std::vector<float> rounded;
    for (const float v : x) {
      narrow.push_back(float_to_bf16(v));
      rounded.push_back(bf16_to_float(narrow.back()));
    }
    for (const Int8Scales scales : kAll) {
      for (const auto& key : {std::optional<RandomKey>(), std::optional(RandomKey{3, 9})}) {
        for (const int workers : {1, 3}) {
          EXPECT_EQ(quantized(DataType::f32, x.data(), rows, columns, scales, key, GetParam(), workers),
                    plainly(x, rows, columns, scales, key))
              << rows << " x " << columns << ", scales " << static_cast<int>(scales)
              << test::repeat_command();
          EXPECT_EQ(quantized(DataType::bf16, narrow.data(), rows, columns, scales, key, GetParam(), workers),
                    plainly(rounded, rows, columns, scales, key))
              << rows << " x " << columns << ", scales " << static_cast<int>(scales)
              << test::repeat_command();
        }
      }
    }
  }
}

TEST_P(Int8CodesTest, WhatIsNotFiniteSpoilsItsScaleAlone) {
  constexpr int64_t kRows = 70, kColumns = 90;
  std::vector<float> x = of_all_sizes(kRows, kColumns);
  x[3 * kColumns + 50] = std::numeric_limits<float>::quiet_NaN();
  x[60 * kColumns + 2] = -std::numeric_limits<float>::infinity();
  for (const Int8Scales scales : kAll) {
    const Codes got = quantized(DataType::f32, x.data(), kRows, kColumns, scales, {}, GetParam(), 1);
    EXPECT_EQ(meaningful(got, kRows, kColumns, scales),
              meaningful(plainly(x, kRows, kColumns, scales, {}), kRows, kColumns, scales))
        << static_cast<int>(scales);
    EXPECT_EQ(got, quantized(DataType::f32, x.data(), kRows, kColumns, scales, {}, Isa::portable, 3));
    int64_t spoilt = 0;
    for (const uint32_t bits : got.scale) spoilt += std::isnan(bits_to_float(bits));
    EXPECT_EQ(spoilt, scales == Int8Scales::tensor ? 1 : 2) << static_cast<int>(scales);
  }
}

TEST_P(Int8CodesTest, TheSmallestNumbersHaveAScaleWithAnInverse) {
  const std::vector<float> x = {0x1p-149F, -0x1p-149F, 0x1p-140F, 0.0F};
  const Codes got = quantized(DataType::f32, x.data(), 1, 4, Int8Scales::rows, {}, GetParam(), 1);
  EXPECT_EQ(got.scale[0], float_to_bits(0x1p-126F));
  EXPECT_EQ(got, plainly(x, 1, 4, Int8Scales::rows, {}));
}

TEST_P(Int8CodesTest, StochasticRoundingIsRightOnAverage) {
  constexpr int64_t kColumns = 20'000;
  std::vector<float> x(kColumns, 0.3F);
  x[0] = 127;  // the scale is 1
  const Codes got =
      quantized(DataType::f32, x.data(), 1, kColumns, Int8Scales::rows, RandomKey{1, 2}, GetParam(), 1);
  int64_t ones = 0;
  for (size_t i = 1; i < x.size(); ++i) {
    EXPECT_TRUE(got.codes[i] == 0 || got.codes[i] == 1);
    ones += got.codes[i];
  }
  EXPECT_NEAR(static_cast<double>(ones) / kColumns, 0.3, 5 * std::sqrt(0.3 * 0.7 / kColumns));
}

TEST(Int8Codes, RefusesOtherTypes) {
  uint8_t x = 0;
  float scale = 0;
  EXPECT_THROW(int8_quantize({DataType::u8, &x, 1, 1}, Int8Scales::rows, {&scale, nullptr, nullptr}, {},
                             Isa::portable, SerialParallel()),
               Error);
}

}  // namespace
}  // namespace ulp::kernels
