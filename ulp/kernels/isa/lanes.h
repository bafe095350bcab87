// 16 floats as vectors of the compiler, so that partial results come in the same order on every instruction set. For files
// that define ULP_VECTOR_BYTES. Loops over arrays of 16 do not serve: GCC unrolls them into single numbers before it looks
// for vectors. Everything has internal linkage.
#pragma once

#if ULP_VECTOR_BYTES > 16
#include <immintrin.h>
#endif

#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

struct Lanes {
  static constexpr int kCount = 16, kWidth = ULP_VECTOR_BYTES / 4, kParts = kCount / kWidth;
  typedef float Vector __attribute__((vector_size(ULP_VECTOR_BYTES)));
  typedef uint32_t Bits __attribute__((vector_size(ULP_VECTOR_BYTES)));
  /// As they may lie in memory.
  typedef float StoredVector __attribute__((vector_size(ULP_VECTOR_BYTES), aligned(4), may_alias));
  typedef uint16_t StoredHalves __attribute__((vector_size(ULP_VECTOR_BYTES / 2), aligned(2), may_alias));

  Vector part[kParts];
};

#define ULP_LANES inline __attribute__((always_inline))

ULP_LANES void fill(Lanes& to, float value) {
#pragma GCC unroll 4
  for (Lanes::Vector& part : to.part) part = value - Lanes::Vector{};
}

ULP_LANES void load(Lanes& to, const float* from) {
#pragma GCC unroll 4
  for (int p = 0; p < Lanes::kParts; ++p)
    to.part[p] = *reinterpret_cast<const Lanes::StoredVector*>(from + p * Lanes::kWidth);
}
ULP_LANES void load(Lanes& to, const uint16_t* from) {
#pragma GCC unroll 4
  for (int p = 0; p < Lanes::kParts; ++p) {
    const auto halves = *reinterpret_cast<const Lanes::StoredHalves*>(from + p * Lanes::kWidth);
    to.part[p] = reinterpret_cast<Lanes::Vector>(__builtin_convertvector(halves, Lanes::Bits) << 16);
  }
}

ULP_LANES void store(float* to, const Lanes& from) {
#pragma GCC unroll 4
  for (int p = 0; p < Lanes::kParts; ++p)
    *reinterpret_cast<Lanes::StoredVector*>(to + p * Lanes::kWidth) = from.part[p];
}
/// Rounded as float_to_bf16() does.
ULP_LANES void store(uint16_t* to, const Lanes& from) {
#pragma GCC unroll 4
  for (int p = 0; p < Lanes::kParts; ++p) {
    const auto bits = reinterpret_cast<Lanes::Bits>(from.part[p]);
    const Lanes::Bits rounded = bits + 0x7fffU + ((bits >> 16) & 1U), quiet = bits | 0x400000U;
    const Lanes::Bits made = (from.part[p] != from.part[p] ? quiet : rounded) >> 16;
    *reinterpret_cast<Lanes::StoredHalves*>(to + p * Lanes::kWidth) =
        __builtin_convertvector(made, Lanes::StoredHalves);
  }
}

#if ULP_VECTOR_BYTES == 64
/// The first n lanes, n < 16; the others stay. Nothing behind them is read.
ULP_LANES void load_first(Lanes& to, const float* from, int64_t n) {
  to.part[0] = _mm512_mask_loadu_ps(to.part[0], static_cast<__mmask16>((1U << n) - 1U), from);
}
ULP_LANES void load_first(Lanes& to, const uint16_t* from, int64_t n) {
  const auto mask = static_cast<__mmask16>((1U << n) - 1U);
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
  to.part[0] = _mm512_mask_mov_ps(to.part[0], mask, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
}
/// Writes those.
ULP_LANES void store_first(float* to, const Lanes& from, int64_t n) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << n) - 1U), from.part[0]);
}
ULP_LANES void store_first(uint16_t* to, const Lanes& from, int64_t n) {
  alignas(32) uint16_t all[Lanes::kCount];
  store(all, from);
  _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1U << n) - 1U),
                           _mm256_load_si256(reinterpret_cast<const __m256i*>(all)));
}
/// The others become 0.
ULP_LANES void keep_first(Lanes& x, int64_t n) {
  x.part[0] = _mm512_maskz_mov_ps(static_cast<__mmask16>((1U << n) - 1U), x.part[0]);
}
#else
template <typename T>
ULP_LANES void load_first(Lanes& to, const T* from, int64_t n) {
  float all[Lanes::kCount];
  store(all, to);
  for (int64_t l = 0; l < n; ++l)
    all[l] = load_as_float(sizeof(T) == 4 ? DataType::f32 : DataType::bf16, from, l);
  load(to, all);
}
template <typename T>
ULP_LANES void store_first(T* to, const Lanes& from, int64_t n) {
  T all[Lanes::kCount];
  store(all, from);
  for (int64_t l = 0; l < n; ++l) to[l] = all[l];
}
ULP_LANES void keep_first(Lanes& x, int64_t n) {
  float all[Lanes::kCount];
  store(all, x);
  for (int64_t l = n; l < Lanes::kCount; ++l) all[l] = 0.0F;
  load(x, all);
}
#endif

/// largest = x where that is larger or a NaN; a NaN stays.
ULP_LANES void take_larger(Lanes& largest, const Lanes& x) {
#pragma GCC unroll 4
  for (int p = 0; p < Lanes::kParts; ++p)
    largest.part[p] =
        ((x.part[p] > largest.part[p]) | (x.part[p] != x.part[p])) ? x.part[p] : largest.part[p];
}

ULP_LANES void add(Lanes& sums, const Lanes& x) {
#pragma GCC unroll 4
  for (int p = 0; p < Lanes::kParts; ++p) sums.part[p] += x.part[p];
}

ULP_LANES void scale(Lanes& x, float factor) {
#pragma GCC unroll 4
  for (Lanes::Vector& part : x.part) part *= factor;
}

/// x = exp(x - largest) for x <= largest, by the arithmetic of exp_negative() in curves.h, and 0 where that is below
/// 2^-125: numbers without a leading bit would take a hundred cycles, and what is masked by -inf would lead to them.
ULP_LANES void exp_below(Lanes& x, float largest) {
#pragma GCC unroll 4
  for (Lanes::Vector& part : x.part) {
    constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23
    const Lanes::Vector below = part - largest, least = -86.64F - Lanes::Vector{};
    const Lanes::Vector bounded = below < least ? least : below;
    const Lanes::Vector n = (bounded * 1.44269504F + kMagic) - kMagic;
    const Lanes::Vector r = (bounded - n * 0.693359375F) - n * -2.12194440e-4F;
    Lanes::Vector p = 1.0F / 720 - Lanes::Vector{};
    p = p * r + 1.0F / 120;
    p = p * r + 1.0F / 24;
    p = p * r + 1.0F / 6;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    const Lanes::Bits biased = reinterpret_cast<Lanes::Bits>(n + kMagic) - 0x4b400000U + 254U;
    const Lanes::Bits half = biased >> 1;
    const Lanes::Vector made = p * reinterpret_cast<Lanes::Vector>(half << 23) *
                               reinterpret_cast<Lanes::Vector>((biased - half) << 23);
    part = below < least ? Lanes::Vector{} : made;
  }
}

/// The largest lane, or a NaN where one is.
ULP_LANES float largest_of(const Lanes& x) {
  float lanes[Lanes::kCount];
  store(lanes, x);
#pragma GCC unroll 4
  for (int half = Lanes::kCount / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int l = 0; l < half; ++l) {
      const float other = lanes[l + half];
      lanes[l] = other > lanes[l] || other != other ? other : lanes[l];
    }
  }
  return lanes[0];
}

/// Halves upon halves: lane l + lane l + 8, and so on.
ULP_LANES float sum_of(const Lanes& x) {
  float lanes[Lanes::kCount];
  store(lanes, x);
#pragma GCC unroll 4
  for (int half = Lanes::kCount / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

#undef ULP_LANES

}  // namespace
}  // namespace ulp::kernels
