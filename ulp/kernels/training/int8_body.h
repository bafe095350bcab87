// The loops of int8_ops.h. Included once by a file per instruction set, which names its table with
// ULP_INT8_OPS; everything here has internal linkage.
#include <cstdint>

#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/training/int8_ops.h"
#if defined(__AVX512F__)
#include "ulp/kernels/isa/random_avx512.h"
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

namespace ulp::kernels {
namespace {

/// An element in memory.
struct F32 {
  using Word = uint32_t;
  static constexpr Word kMagnitude = 0x7fffffffU;
  static uint32_t bits(Word word) { return word; }
};
struct Bf16 {
  using Word = uint16_t;
  static constexpr Word kMagnitude = 0x7fffU;
  static uint32_t bits(Word word) { return uint32_t{word} << 16; }
};

template <typename T>
uint32_t largest(const void* x, int64_t n) {
  const auto* __restrict from = static_cast<const typename T::Word*>(x);
  typename T::Word most = 0;
  for (int64_t i = 0; i < n; ++i) {
    const typename T::Word magnitude = from[i] & T::kMagnitude;
    most = magnitude > most ? magnitude : most;
  }
  return T::bits(most);
}

template <typename T>
void largest_each(const void* x, int64_t n, uint32_t* __restrict largest) {
  const auto* __restrict from = static_cast<const typename T::Word*>(x);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = T::bits(from[i] & T::kMagnitude);
    largest[i] = magnitude > largest[i] ? magnitude : largest[i];
  }
}

constexpr float kMagic = 12582912.0F;  // see round_even in float_bits.h

template <typename T, bool kEach>
void nearest(const void* x, int64_t n, const float* __restrict inverse, int8_t* __restrict codes) {
  const auto* __restrict from = static_cast<const typename T::Word*>(x);
  const float one = inverse[0];
  for (int64_t i = 0; i < n; ++i) {
    // Three roundings, of the scale, its inverse and this, leave no |v| above 127.1. The sum has the rounded
    // number in its lowest bits.
    const float v = bits_to_float(T::bits(from[i])) * (kEach ? inverse[i] : one);
    codes[i] = static_cast<int8_t>(float_to_bits(v + kMagic));
  }
}

template <typename T, bool kEach>
void stochastic(const void* x, int64_t n, const float* __restrict inverse, const uint32_t* __restrict random,
                int8_t* __restrict codes) {
  const auto* __restrict from = static_cast<const typename T::Word*>(x);
  const float one = inverse[0];
  for (int64_t i = 0; i < n; ++i) {
    float v = bits_to_float(T::bits(from[i])) * (kEach ? inverse[i] : one);
    v = v > -127.0F ? v : -127.0F;  // or what is a hair beyond could be rounded away from 0
    v = v < 127.0F ? v : 127.0F;
    const float rounded = (v + kMagic) - kMagic;
    const float below = rounded > v ? rounded - 1.0F : rounded;
    const float chance = static_cast<float>(static_cast<int32_t>(random[i] >> 8)) * 0x1p-24F;
    const float code = chance < v - below ? below + 1.0F : below;
    codes[i] = static_cast<int8_t>(float_to_bits(code + kMagic));
  }
}

void random_words(formats::RandomKey key, uint64_t group, uint32_t* words) {
#if defined(__AVX512F__)
  random_bits_of_group_avx512(key, group, words);
#else
  formats::random_bits_of_group(key, group, words);
#endif
}

void transpose_plainly(const int8_t* from, int64_t from_step, int64_t rows, int64_t columns, int8_t* to,
                       int64_t to_step) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[c * to_step + r] = from[r * from_step + c];
  }
}

#if defined(__AVX2__)
/// 16 x 16 bytes. With the row and the column of a byte as one number of eight bits, a stage rotates it by
/// one bit.
inline void transpose_square(const int8_t* from, int64_t from_step, int8_t* to, int64_t to_step) {
  __m128i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_step));
#pragma GCC unroll 2
  for (int stage = 0; stage < 2; ++stage) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
      b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      a[2 * i] = _mm_unpacklo_epi8(b[i], b[i + 8]);
      a[2 * i + 1] = _mm_unpackhi_epi8(b[i], b[i + 8]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * to_step), a[i]);
}

void transpose(const int8_t* from, int64_t from_step, int64_t rows, int64_t columns, int8_t* to,
               int64_t to_step) {
  const int64_t whole_rows = rows / 16 * 16, whole_columns = columns / 16 * 16;
  for (int64_t c = 0; c < whole_columns; c += 16) {
    for (int64_t r = 0; r < whole_rows; r += 16)
      transpose_square(from + r * from_step + c, from_step, to + c * to_step + r, to_step);
  }
  transpose_plainly(from + whole_columns, from_step, whole_rows, columns - whole_columns,
                    to + whole_columns * to_step, to_step);
  transpose_plainly(from + whole_rows * from_step, from_step, rows - whole_rows, columns, to + whole_rows,
                    to_step);
}
#else
constexpr auto transpose = transpose_plainly;
#endif

}  // namespace

const Int8Ops ULP_INT8_OPS = {
    {largest<F32>, largest<Bf16>},
    {largest_each<F32>, largest_each<Bf16>},
    {{nearest<F32, false>, nearest<F32, true>}, {nearest<Bf16, false>, nearest<Bf16, true>}},
    {{stochastic<F32, false>, stochastic<F32, true>}, {stochastic<Bf16, false>, stochastic<Bf16, true>}},
    random_words,
    transpose};

}  // namespace ulp::kernels
