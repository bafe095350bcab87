// Fake quantization on every instruction set, against plain arithmetic on the same values.
#include "ulp/kernels/training/fake_quant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/common/half.h"

namespace ulp::kernels {
namespace {

using test::kInf;
using test::kSerial;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class FakeQuantTest : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(All, FakeQuantTest, ::testing::ValuesIn(available_isas()), test::isa_name);

/// Scales and zero points of some channels, and what FakeQuant points to.
struct Scheme {
  std::vector<float> scale, zero_point;
  int64_t inner = 1;
  float qmin = 0, qmax = 255;
  FakeQuant how() const {
    return {scale.data(), zero_point.data(), static_cast<int64_t>(scale.size()), inner, qmin, qmax};
  }
};

struct Result {
  std::vector<uint32_t> values;  // bits
  std::vector<uint64_t> inside;
  bool operator==(const Result&) const = default;
};

template <typename T>
uint32_t bits_of(T value) {
  if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(value);
  return value;
}

/// The definition in fake_quant.h, without any of the kernel's tricks.
Result plain(const Scheme& s, const std::vector<float>& x, bool bf16) {
  Result out{{}, std::vector<uint64_t>(static_cast<size_t>(mask_words(static_cast<int64_t>(x.size()))))};
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i / static_cast<size_t>(s.inner) % s.scale.size();
    const float low = s.qmin - s.zero_point[c], high = s.qmax - s.zero_point[c];
    const float r = std::nearbyint(x[i] * (1.0F / s.scale[c]));
    const bool inside = r >= low && r <= high;
    const float code = inside ? r : r > high ? high : low;
    const float value = (code == 0 ? 0.0F : code) * s.scale[c];  // never -0
    out.values.push_back(bf16 ? float_to_bf16(value) : bits_of(value));
    out.inside[i / 64] |= uint64_t{inside} << (i % 64);
  }
  return out;
}

template <typename T>
Result run(const Scheme& s, const std::vector<T>& x, Isa isa, const Parallel& parallel = kSerial) {
  const auto n = static_cast<int64_t>(x.size());
  test::Guarded<T> y(n);
  test::Guarded<uint64_t> inside(mask_words(n));
  const DataType type = sizeof(T) == 4 ? DataType::f32 : DataType::bf16;
  fake_quantize(s.how(), type, x.data(), n, y.data(), inside.data(), isa, parallel);
  EXPECT_TRUE(y.intact() && inside.intact()) << n << " elements, " << test::repeat_command();
  std::vector<T> unmasked(x.size());
  fake_quantize(s.how(), type, x.data(), n, unmasked.data(), nullptr, isa, parallel);
  EXPECT_EQ(unmasked, y.values()) << test::repeat_command();
  Result out{{}, inside.values()};
  for (const T value : y.values()) out.values.push_back(bits_of(value));
  return out;
}

/// Random values, exact ties and edges, zeros of both signs, and what is not finite.
std::vector<float> assorted(const Scheme& s, int64_t n, uint32_t seed) {
  std::vector<float> x = test::random_floats(n, seed, -1.5F, 1.5F);
  const std::vector<int> kind = test::random_ints<int>(n, seed + 1, 0, 9);
  const std::vector<int> step = test::random_ints<int>(n, seed + 2, -300, 300);
  const float specials[] = {kNan, kInf, -kInf, 3e38F, -3e38F, 1e-42F, 0.0F, -0.0F};
  for (int64_t i = 0; i < n; ++i) {
    const size_t k = static_cast<size_t>(i), c = static_cast<size_t>(i / s.inner) % s.scale.size();
    x[k] *= 140 * s.scale[c];
    if (kind[k] == 0) x[k] = (static_cast<float>(step[k]) + 0.5F) * s.scale[c];
    if (kind[k] == 1) x[k] = static_cast<float>(step[k]) * s.scale[c];
    if (kind[k] == 2) x[k] = specials[step[k] & 7];
  }
  return x;
}

const Scheme kPerTensor{{0.25F}, {117}, 1, 0, 255};

TEST_P(FakeQuantTest, IsWhatTheDefinitionSaysForEverySize) {
  for (const Scheme& scheme : {kPerTensor, Scheme{{0.0371F}, {0}, 1, -127, 127},
                               Scheme{{3.1F}, {-3}, 1, -8, 7}, Scheme{{1e-3F}, {40000}, 1, 0, 65535}}) {
    for (const int64_t n : {0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128, 1000}) {
      const auto x = assorted(scheme, n, static_cast<uint32_t>(n));
      EXPECT_EQ(run(scheme, x, GetParam()), plain(scheme, x, false))
          << n << " elements, scale " << scheme.scale[0] << ", " << test::repeat_command();
    }
  }
}

TEST_P(FakeQuantTest, EveryBf16Number) {
  std::vector<uint16_t> codes(65536);
  std::vector<float> values;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint16_t>(i);
    values.push_back(bf16_to_float(codes[i]));
  }
  for (const Scheme& scheme : {kPerTensor, Scheme{{0.0371F}, {0}, 1, -7, 7}}) {
    EXPECT_EQ(run(scheme, codes, GetParam()), plain(scheme, values, true)) << test::repeat_command();
  }
}

TEST_P(FakeQuantTest, ChannelsOfAnyLength) {
  for (const int64_t inner : {1, 2, 9, 16, 27, 63, 64, 65, 576}) {
    Scheme scheme{test::random_floats(5, 7, 0.01F, 0.5F), {0, 3, -2, 1, 5}, inner, -127, 127};
    for (const int64_t outer : {1, 3}) {
      const auto x = assorted(scheme, outer * 5 * inner, static_cast<uint32_t>(inner));
      EXPECT_EQ(run(scheme, x, GetParam()), plain(scheme, x, false))
          << inner << " in a row, " << outer << " times, " << test::repeat_command();
    }
  }
}

TEST_P(FakeQuantTest, AnyNumberOfWorkersGivesTheSameBits) {
  Scheme scheme{test::random_floats(7, 8, 0.01F, 0.5F), {0, 3, -2, 1, 5, 0, 0}, 5000, -127, 127};
  const auto x = assorted(scheme, 7 * 5000 * 3, 5);
  const Result expected = run(scheme, x, Isa::portable);
  for (const int workers : {2, 5}) {
    EXPECT_EQ(run(scheme, x, GetParam(), test::ThreadParallel(workers)), expected)
        << workers << " workers, " << test::repeat_command();
  }
}

TEST_P(FakeQuantTest, WorksInPlace) {
  auto x = assorted(kPerTensor, 500, 9);
  const Result expected = plain(kPerTensor, x, false);
  fake_quantize(kPerTensor.how(), DataType::f32, x.data(), 500, x.data(), nullptr, GetParam(), kSerial);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(bits_of(x[i]), expected.values[i]) << i;
}

template <typename Word>
void check_keep(Isa isa) {
  for (const int64_t n : {0, 1, 15, 16, 31, 33, 63, 64, 65, 100, 40'000}) {
    std::vector<uint64_t> inside;
    for (int64_t i = 0; i < mask_words(n); ++i)
      inside.push_back(0x9e3779b97f4a7c15U * (7 + static_cast<uint64_t>(i)));
    std::vector<Word> gradient, expected;
    for (int64_t i = 0; i < n; ++i) {
      gradient.push_back(static_cast<Word>(0xfff8123456789abcU + static_cast<uint64_t>(i) * 77));  // NaN, too
      expected.push_back(inside[static_cast<size_t>(i / 64)] >> (i % 64) & 1 ? gradient.back() : Word{0});
    }
    for (const int workers : {1, 3}) {
      test::Guarded<Word> out(n);
      keep_inside(inside.data(), sizeof(Word), gradient.data(), n, out.data(), isa,
                  test::ThreadParallel(workers));
      EXPECT_TRUE(out.intact() && out.values() == expected)
          << n << " elements of " << sizeof(Word) << " bytes, " << test::repeat_command();
    }
  }
}

TEST_P(FakeQuantTest, KeepsTheGradientWhereTheBitIsSet) {
  check_keep<uint16_t>(GetParam());
  check_keep<uint32_t>(GetParam());
  check_keep<uint64_t>(GetParam());
}

TEST(FakeQuant, RefusesOtherTypes) {
  float x = 0;
  uint64_t inside = 0;
  EXPECT_THROW(fake_quantize(kPerTensor.how(), DataType::u8, &x, 1, &x, nullptr, Isa::portable, kSerial),
               Error);
  EXPECT_THROW(keep_inside(&inside, 1, &x, 1, &x, Isa::portable, kSerial), Error);
}

}  // namespace
}  // namespace ulp::kernels
