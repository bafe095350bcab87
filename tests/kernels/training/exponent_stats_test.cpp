// Counts of exponents on every instruction set, against plain arithmetic on the same values.
#include "ulp/kernels/training/exponent_stats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/helpers.h"
#include "ulp/base/error.h"
#include "ulp/formats/convert.h"

namespace ulp::kernels {
namespace {

using test::kInf;
using test::kSerial;

constexpr uint64_t kHalfPoint = (uint64_t{1} << 52) * 3 / 4;  // a cut at 1.75

class ExponentStatsTest : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(All, ExponentStatsTest, ::testing::ValuesIn(available_isas()), test::isa_name);

/// The definition: 2^e < |v| <= 2^(e+1), upper from (1 + cut / 2^52) * 2^e on.
ExponentStats plain(const std::vector<double>& values, uint64_t cut) {
  ExponentStats out;
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = std::fabs(values[i]);
    if (!std::isfinite(v)) {
      ++(std::isnan(v) ? out.nans : out.infinities);
      if (out.first_nonfinite < 0) out.first_nonfinite = static_cast<int64_t>(i);
    } else if (v == 0) {
      ++out.zeros;
    } else {
      int e = ExponentStats::kLowest;
      while (e < 127 && v > std::ldexp(1.0, e + 1)) ++e;
      const double cut_at = std::ldexp(1.0 + std::ldexp(static_cast<double>(cut), -52), e);
      auto& b = out.binades[static_cast<size_t>(e - ExponentStats::kLowest)];
      ++(v >= cut_at ? b.upper : b.lower);
      out.amax = std::max(out.amax, v);
    }
  }
  return out;
}

/// Magnitudes over the whole range of fp32, with zeros, powers of two, their neighbours and subnormals.
std::vector<float> assorted(int64_t n, uint32_t seed, bool specials) {
  std::mt19937 engine(seed);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& v : out) {
    uint32_t code = static_cast<uint32_t>(engine());
    const uint32_t kind = static_cast<uint32_t>(engine()) % 16;
    if (kind == 0) code &= 0x80000000U;
    if (kind == 1) code &= 0xff800000U;
    if (kind == 2) code = (code & 0xff800000U) + 1;
    if (kind == 3) code = (code | 0x7fffffU);
    if (kind == 4) code &= 0x807fffffU;
    if (kind == 5) code = (code & 0xff800000U) | 0x600000U;
    if (kind == 6) code = ((code & 0xff800000U) | 0x600000U) - 1;
    if ((code & 0x7f800000U) == 0x7f800000U && !specials) code &= 0xbfffffffU;
    v = std::bit_cast<float>(code);
  }
  return out;
}

template <typename T>
std::vector<double> widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

TEST_P(ExponentStatsTest, CountsFp32AsDefined) {
  for (const bool specials : {false, true}) {
    for (const uint64_t cut :
         {uint64_t{1}, uint64_t{1} << 29, kHalfPoint, kHalfPoint + 1, uint64_t{1} << 52}) {
      const auto x = assorted(5000, 7, specials);
      const auto expected = plain(widened(x), cut);
      EXPECT_EQ(exponent_stats(DataType::f32, x.data(), 5000, cut, GetParam(), kSerial), expected)
          << "cut " << cut << ", " << test::repeat_command();
      EXPECT_EQ(expected.total(), 5000);
    }
  }
}

TEST_P(ExponentStatsTest, CountsEveryCodeOfBf16AndFp16) {
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  for (const char* name : {"bf16", "fp16"}) {
    const auto& format = formats::find(name);
    std::vector<double> values;
    for (const uint16_t code : codes) values.push_back(formats::decode(format, code));
    const DataType type = std::string(name) == "bf16" ? DataType::bf16 : DataType::f16;
    EXPECT_EQ(exponent_stats(type, codes.data(), 65536, kHalfPoint, GetParam(), kSerial),
              plain(values, kHalfPoint))
        << name << ", " << test::repeat_command();
  }
}

TEST_P(ExponentStatsTest, CountsFp64BeyondFp32InTheEndBinades) {
  const std::vector<double> x = {1e-300,
                                 -4.9e-324,
                                 0.0,
                                 -0.0,
                                 1.0,
                                 1.75,
                                 std::nextafter(1.75, 0),
                                 1e300,
                                 -kInf,
                                 std::nan(""),
                                 3e-40,
                                 std::ldexp(1.0, -149),
                                 std::ldexp(1.0, 128)};
  ExponentStats got = exponent_stats(DataType::f64, x.data(), static_cast<int64_t>(x.size()), kHalfPoint,
                                     GetParam(), kSerial);
  EXPECT_EQ(got.zeros, 2);
  EXPECT_EQ(got.infinities, 1);
  EXPECT_EQ(got.nans, 1);
  EXPECT_EQ(got.first_nonfinite, 8);
  EXPECT_EQ(got.amax, 1e300);
  EXPECT_EQ(got.binades[0].lower + got.binades[0].upper, 3);      // two far below and 2^-149
  EXPECT_EQ(got.binades[277].lower + got.binades[277].upper, 2);  // 1e300 and 2^128
  EXPECT_EQ(got.binades[150].lower, 1);                           // just below 1.75
  EXPECT_EQ(got.binades[150].upper, 1);                           // 1.75
  EXPECT_EQ(got.binades[149].upper, 1);                           // 1 is the end of (1/2, 1]
  EXPECT_EQ(got.total(), static_cast<int64_t>(x.size()));
}

TEST_P(ExponentStatsTest, IsTheSameForAnyNumberOfWorkersAndAnySize) {
  const auto x = assorted(600'001, 3, true);
  const auto expected = exponent_stats(DataType::f32, x.data(), 600'001, kHalfPoint, Isa::portable, kSerial);
  for (const int workers : {2, 3, 5}) {
    const test::ThreadParallel parallel(workers);
    EXPECT_EQ(exponent_stats(DataType::f32, x.data(), 600'001, kHalfPoint, GetParam(), parallel), expected)
        << workers << " workers, " << test::repeat_command();
  }
  for (const int64_t n : {0, 1, 2, 15, 16, 17, 255, 256, 257, 511, 1023}) {
    const std::vector<float> part(x.begin(), x.begin() + n);
    EXPECT_EQ(exponent_stats(DataType::f32, part.data(), n, kHalfPoint, GetParam(), kSerial),
              plain(widened(part), kHalfPoint))
        << n << " elements, " << test::repeat_command();
  }
}

TEST_P(ExponentStatsTest, FindsTheFirstNonFiniteValueWhereverItIs) {
  const test::ThreadParallel parallel(3);
  std::vector<float> x(400'000, 1.0F);
  for (const int64_t place : {399'999, 262'143, 131'072, 300, 255, 0}) {  // each before the ones so far
    x[static_cast<size_t>(place)] = static_cast<float>(place % 2 ? kInf : -kInf);
    const auto got = exponent_stats(DataType::f32, x.data(), 400'000, kHalfPoint, GetParam(), parallel);
    EXPECT_EQ(got.first_nonfinite, place) << test::repeat_command();
  }
}

TEST(ExponentStats, MergesAndScales) {
  const std::vector<float> x = {1.0F, 3.0F, 0.0F, 1e-3F}, y = {8.0F, 0.25F};
  const auto stats = [](const std::vector<float>& v) {
    return exponent_stats(DataType::f32, v.data(), static_cast<int64_t>(v.size()), kHalfPoint, Isa::portable,
                          kSerial);
  };
  ExponentStats both = stats(x);
  both.merge(stats(y));
  EXPECT_EQ(both, stats({1.0F, 3.0F, 0.0F, 1e-3F, 8.0F, 0.25F}));
  EXPECT_EQ(stats(x).scaled(5), stats({32.0F, 96.0F, 0.0F, 1e-3F * 32}));
  EXPECT_EQ(stats(x).scaled(-3).scaled(3), stats(x));
  const ExponentStats gone = stats(x).scaled(-400);
  EXPECT_EQ(gone.binades[0].lower + gone.binades[0].upper, 3);
}

TEST(ExponentStats, RefusesIntegers) {
  const int64_t x = 1;
  EXPECT_THROW(exponent_stats(DataType::i64, &x, 1, kHalfPoint, Isa::portable, kSerial), Error);
}

TEST(ExponentStats, RefusesACutOutsideTheBinade) {
  const float x = 1;
  EXPECT_THROW(exponent_stats(DataType::f32, &x, 1, 0, Isa::portable, kSerial), Error);
  EXPECT_THROW(exponent_stats(DataType::f32, &x, 1, (uint64_t{1} << 52) + 1, Isa::portable, kSerial), Error);
}

}  // namespace
}  // namespace ulp::kernels
