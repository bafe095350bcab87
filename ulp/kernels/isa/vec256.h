// 8 lanes of AVX2 for kernels; only for files compiled with it. Everything has internal linkage.
#pragma once

#include <immintrin.h>

#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

struct Vec256 {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  static constexpr bool kStoresBytes = true;

  static F loadf(const float* p) { return _mm256_loadu_ps(p); }
  static I loadi(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static void storef(float* p, F v) { _mm256_store_ps(p, v); }
  static void storei(int32_t* p, I v) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
  static F set1(float v) { return _mm256_set1_ps(v); }
  static I seti(int32_t v) { return _mm256_set1_epi32(v); }
  static F to_float(I v) { return _mm256_cvtepi32_ps(v); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static I addi(I a, I b) { return _mm256_add_epi32(a, b); }
  static I subi(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I muli(I a, I b) { return _mm256_mullo_epi32(a, b); }
  /// Products of bytes without and with a sign, two to 16 bits, which saturate.
  static I madd8(I a, I b) { return _mm256_maddubs_epi16(a, b); }
  static I madd16(I a, I b) { return _mm256_madd_epi16(a, b); }
  static I add16(I a, I b) { return _mm256_add_epi16(a, b); }
  static I sub16(I a, I b) { return _mm256_sub_epi16(a, b); }
  static void store16(int16_t* p, I v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  template <int kBits>
  static I shift_right(I v) {
    return _mm256_srai_epi32(v, kBits);
  }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static I broadcast(const uint8_t* p) {
    int32_t unit;
    __builtin_memcpy(&unit, p, 4);
    return _mm256_set1_epi32(unit);
  }

  static F widen_bf16(__m128i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
  }
  static F load_bf16(const void* p) { return widen_bf16(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
  static I load_u8(const void* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }

  static I load_s8(const void* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  static I load_u8_as_16(const uint8_t* p) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I load_s8_as_s16(const void* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  /// Four bits of each lane, from bit 4 j on, as a number with a sign.
  template <int kJ>
  static I signed_nibble(I words) {
    return _mm256_srai_epi32(_mm256_slli_epi32(words, 28 - 4 * kJ), 28);
  }

  /// The low (0) or high (1) four bits of each byte as a byte.
  template <int kHalf>
  static I nibbles(I bytes) {
    return _mm256_and_si256(_mm256_srli_epi32(bytes, 4 * kHalf), _mm256_set1_epi8(15));
  }
  static I xori(I a, I b) { return _mm256_xor_si256(a, b); }

  /// The first n elements as floats; nothing behind them is read.
  static F load_as_float(DataType type, const void* data, int64_t i, int64_t n) {
    if (n < kLanes) {
      alignas(32) float part[kLanes] = {};
      for (int64_t k = 0; k < n; ++k) part[k] = kernels::load_as_float(type, data, i + k);
      return _mm256_load_ps(part);
    }
    if (type == DataType::f32) return loadf(static_cast<const float*>(data) + i);
    if (type == DataType::bf16) return load_bf16(static_cast<const uint16_t*>(data) + i);
    return to_float(load_u8(static_cast<const uint8_t*>(data) + i));
  }
  static void store_f32(void* data, int64_t i, int64_t n, F v) {
    float* to = static_cast<float*>(data) + i;
    if (n >= kLanes) return _mm256_storeu_ps(to, v);
    alignas(32) float part[kLanes];
    _mm256_store_ps(part, v);
    for (int64_t k = 0; k < n; ++k) to[k] = part[k];
  }
  static void store_bf16(void* data, int64_t i, int64_t n, F v) {
    const I bits = _mm256_castps_si256(v);
    const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), seti(1));
    const I rounded = addi(addi(bits, seti(0x7fff)), odd);
    const I quiet = _mm256_or_si256(bits, seti(0x400000));
    const I nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const I chosen = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
    uint16_t* to = static_cast<uint16_t*>(data) + i;
    if (n >= kLanes) return _mm_storeu_si128(reinterpret_cast<__m128i*>(to), packed);
    alignas(16) uint16_t part[kLanes];
    _mm_store_si128(reinterpret_cast<__m128i*>(part), packed);
    for (int64_t k = 0; k < n; ++k) to[k] = part[k];
  }
  /// Rounded codes of M x NB vectors -> bytes at y + m * y_step: four vectors become one by saturating packs.
  struct Bytes {
    I zero, low;
  };
  static Bytes byte_limits(int32_t zero, float lo) {
    const int code = static_cast<int32_t>(round_even(lo)) + zero;
    return {_mm256_set1_epi16(static_cast<int16_t>(zero)), _mm256_set1_epi8(static_cast<char>(code))};
  }
  static I round(F v) { return _mm256_cvtps_epi32(v); }
  static I pack4(I a, I b, I c, I d, const Bytes& limits) {
    const I low = _mm256_adds_epi16(_mm256_packs_epi32(a, b), limits.zero);
    const I high = _mm256_adds_epi16(_mm256_packs_epi32(c, d), limits.zero);
    const I bytes = _mm256_max_epu8(_mm256_packus_epi16(low, high), limits.low);
    // Each 128-bit lane holds four channels of all four vectors.
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  template <int M, int NB>
  static inline __attribute__((always_inline)) void store_bytes(I (&q)[M][NB], const Bytes& limits,
                                                                uint8_t* y, int64_t y_step) {
    constexpr int kVectors = M * NB;
    constexpr int64_t kRowBytes = int64_t{NB} * kLanes;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; v += 4) {
      const auto at = [&](int i) __attribute__((always_inline)) {
        const int k = v + i < kVectors ? v + i : kVectors - 1;
        return q[k / NB][k % NB];
      };
      const I bytes = pack4(at(0), at(1), at(2), at(3), limits);
      uint8_t* row = y + v / NB * y_step;
      if constexpr (NB == 4) {
        _mm256_storeu_si256(reinterpret_cast<I*>(row), bytes);
        continue;
      }
#pragma GCC unroll 4
      for (int64_t i = 0; i < 4 / NB; ++i) {
        if (v + i * NB >= kVectors) break;
        const __m128i half =
            i * kRowBytes < 16 ? _mm256_castsi256_si128(bytes) : _mm256_extracti128_si256(bytes, 1);
        const __m128i part = i * kRowBytes % 16 == 0 ? half : _mm_srli_si128(half, 8);
        __builtin_memcpy(row + i * y_step, &part, static_cast<size_t>(kRowBytes));
      }
    }
  }
  /// v is inside [-zero, 255 - zero]; rounds half to even.
  static void store_u8(void* data, int64_t i, int64_t n, F v, I zero) {
    const I q = addi(_mm256_cvtps_epi32(v), zero);
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    const __m128i bytes = _mm_packus_epi16(words, words);
    uint8_t* to = static_cast<uint8_t*>(data) + i;
    if (n >= kLanes) return _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
    alignas(16) uint8_t part[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(part), bytes);
    for (int64_t k = 0; k < n; ++k) to[k] = part[k];
  }
};

}  // namespace
}  // namespace ulp::kernels
