#include "ulp/kernels/linear/weight_inputs.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "ulp/kernels/common/aligned_buffer.h"

namespace ulp::kernels {
namespace {

static_assert(sizeof(DigitGroup) == 4 * sizeof(float));

bool needs_sums(const WeightInputShape& shape) {
  return shape.has_zero || shape.has_minimum;
}

/// From one group to the next, of digits.
int64_t digits_of_group(const WeightInputShape& shape) {
  return ceil_div(shape.group, kCodesOfWord) * kDigitWords;
}

float negative_sum(const float* x, int64_t count) {
  float sums[8] = {};
  int64_t k = 0;
  for (; k + 8 <= count; k += 8) {
    for (int64_t j = 0; j < 8; ++j) sums[j] += x[k + j];
  }
  for (int64_t j = 0; k + j < count; ++j) sums[j] += x[k + j];
  for (int64_t step : {4, 2, 1}) {
    for (int64_t j = 0; j < step; ++j) sums[j] += sums[j + step];
  }
  return -sums[0];
}

/// The bits of the largest magnitude. Those of what is not finite are larger than all others.
int32_t largest_bits(const float* x, int64_t count) {
  int32_t largest = 0;
  for (int64_t k = 0; k < count; ++k) largest = std::max(largest, std::bit_cast<int32_t>(x[k]) & 0x7fffffff);
  return largest;
}

constexpr int32_t kInfinity = 0x7f800000;
constexpr int32_t kSigns = 0x808080;  // of three digits; with it added these are bytes without a sign

/// The unit of a group whose largest input has these bits: 2^(e - 149), where e is its exponent as it is stored, or
/// one more where its first 23 bits would round to what three digits do not hold.
double unit_of(int32_t bits) {
  if (bits == 0) return 1;  // not a subnormal number: they are slow
  constexpr int32_t kLargest = 0xffffff - kSigns, kRoom = (1 << 24) - (2 * kLargest + 1);
  const auto exponent = static_cast<uint64_t>(static_cast<uint32_t>(bits + kRoom) >> 23);
  return std::bit_cast<double>((exponent + 1023 - 149) << 52);
}

// Four inputs as vectors of the compiler: loops over arrays of four stay single numbers.
typedef int32_t Lanes __attribute__((vector_size(16)));
typedef double Pair __attribute__((vector_size(16)));
typedef int8_t Bytes __attribute__((vector_size(16)));

/// Inputs 0, 2, 4 and 6 in units, three bytes each: digits with a sign.
Lanes units_of(const float* x, double inverse) {
  // The sums have no fraction bits left; their low halves are integers.
  constexpr double kMagic = 0x1.8p52 + kSigns;
  const Pair a = Pair{x[0], x[2]} * inverse + kMagic, b = Pair{x[4], x[6]} * inverse + kMagic;
  return __builtin_shufflevector((Lanes)a, (Lanes)b, 0, 2, 4, 6) ^ kSigns;
}

/// Bytes 0 of the lanes, then bytes 1, bytes 2 and bytes 3, in two steps that processors have. GCC does not find them
/// in one, or in shuffles of one vector.
Bytes by_digit(Lanes units) {
  auto bytes = (Bytes)units;
  for (int step = 0; step < 2; ++step) {
    const Bytes high =
        __builtin_shufflevector(bytes, bytes, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    bytes = __builtin_shufflevector(bytes, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  }
  return bytes;
}

/// Sums of the digits of four lanes.
struct DigitSums {
  Lanes sums[kDigits] = {};

  /// The digits of a word.
  void lay(const float* x, double inverse, int32_t* to) {
    const Lanes even = units_of(x, inverse), odd = units_of(x + 1, inverse);
    const Bytes even_bytes = by_digit(even), odd_bytes = by_digit(odd);
    std::memcpy(to, &even_bytes, sizeof(int32_t) * kDigits);
    std::memcpy(to + kDigits, &odd_bytes, sizeof(int32_t) * kDigits);
    for (int d = 0; d < kDigits; ++d) {
      const int above = 24 - 8 * d;
      sums[d] += (even << above >> 24) + (odd << above >> 24);
    }
  }
  int32_t sum(int64_t d) const { return (sums[d][0] + sums[d][1]) + (sums[d][2] + sums[d][3]); }
};

/// `middle`: what codes stand for less.
DigitGroup lay_digits(const float* x, int64_t count, int32_t middle, int32_t* to) {
  const int32_t largest = largest_bits(x, count);
  const bool finite = largest < kInfinity;
  const double unit = finite ? unit_of(largest) : 1, inverse = 1 / unit;
  DigitSums sums;
  int64_t k = 0;
  for (; k + kCodesOfWord <= count; k += kCodesOfWord, to += kDigitWords) sums.lay(x + k, inverse, to);
  if (k < count) {
    float last[kCodesOfWord] = {};
    std::copy(x + k, x + count, last);
    sums.lay(last, inverse, to);
  }
  DigitGroup group;
  for (int64_t d = 0; d < kDigits; ++d) group.start[d] = -middle * sums.sum(d);
  group.unit = finite ? static_cast<float>(unit) : std::numeric_limits<float>::quiet_NaN();
  return group;
}

}  // namespace

int64_t input_floats(const WeightInputShape& shape, int64_t rows) {
  const int64_t digits = shape.bits == 4 ? digits_of_group(shape) + 4 : 0;
  return rows * shape.groups * (digits + (needs_sums(shape) ? 1 : 0));
}

WeightInputs lay_inputs(const WeightInputShape& shape, int64_t rows, const float* x, float* workspace) {
  const int64_t groups = rows * shape.groups, step = digits_of_group(shape);
  WeightInputs inputs{.x = x, .stride = shape.in, .group_stride = shape.group};
  DigitGroup* starts = nullptr;
  int32_t* digits = nullptr;
  if (shape.bits == 4) {
    inputs.starts = starts = reinterpret_cast<DigitGroup*>(workspace);
    inputs.digits = digits = reinterpret_cast<int32_t*>(starts + groups);
    workspace = reinterpret_cast<float*>(digits + groups * step);
    inputs.stride = shape.groups * step;
    inputs.group_stride = step;
  }
  if (needs_sums(shape)) inputs.negative_sums = workspace;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g % shape.groups * shape.group, count = std::min(shape.group, shape.in - first);
    const float* of_group = x + g / shape.groups * shape.in + first;
    if (digits != nullptr)
      starts[g] = lay_digits(of_group, count, shape.has_minimum ? 0 : 8, digits + g * step);
    if (needs_sums(shape)) workspace[g] = negative_sum(of_group, count);
  }
  return inputs;
}

}  // namespace ulp::kernels
