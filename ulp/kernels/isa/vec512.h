// 16 lanes of AVX-512 for kernels; only for files compiled with it. Everything has internal linkage.
#pragma once

#include <immintrin.h>

#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

struct Vec512 {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  static constexpr bool kStoresBytes = true;

  static F loadf(const float* p) { return _mm512_loadu_ps(p); }
  static I loadi(const void* p) { return _mm512_loadu_si512(p); }
  static void storef(float* p, F v) { _mm512_store_ps(p, v); }
  static void storei(int32_t* p, I v) { _mm512_store_si512(p, v); }
  static F set1(float v) { return _mm512_set1_ps(v); }
  static I seti(int32_t v) { return _mm512_set1_epi32(v); }
  static F to_float(I v) { return _mm512_cvtepi32_ps(v); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static I addi(I a, I b) { return _mm512_add_epi32(a, b); }
  static I subi(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I muli(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static I add16(I a, I b) { return _mm512_add_epi16(a, b); }
  /// Products of bytes without and with a sign, two to 16 bits, which saturate.
  static I madd8(I a, I b) { return _mm512_maddubs_epi16(a, b); }
  static I madd16(I a, I b) { return _mm512_madd_epi16(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static I broadcast(const uint8_t* p) {
    int32_t unit;
    __builtin_memcpy(&unit, p, 4);
    return _mm512_set1_epi32(unit);
  }

  static __mmask16 mask(int64_t n) { return n >= 16 ? 0xffff : static_cast<__mmask16>((1U << n) - 1U); }

  static F widen_bf16(__m256i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
  static F load_bf16(const void* p) { return widen_bf16(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
  static I load_u8(const void* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static I load_s8(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  /// Four bits of each lane, from bit 4 j on, as a number with a sign.
  template <int kJ>
  static I signed_nibble(I words) {
    return _mm512_srai_epi32(_mm512_slli_epi32(words, 28 - 4 * kJ), 28);
  }

  /// The low (0) or high (1) four bits of each byte as a byte.
  template <int kHalf>
  static I nibbles(I bytes) {
    return _mm512_and_si512(_mm512_srli_epi32(bytes, 4 * kHalf), _mm512_set1_epi8(15));
  }
  static I xori(I a, I b) { return _mm512_xor_si512(a, b); }

  /// The first n elements as floats; nothing behind them is read.
  static F load_as_float(DataType type, const void* data, int64_t i, int64_t n) {
    const __mmask16 m = mask(n);
    if (type == DataType::f32) return _mm512_maskz_loadu_ps(m, static_cast<const float*>(data) + i);
    if (type == DataType::bf16)
      return widen_bf16(_mm256_maskz_loadu_epi16(m, static_cast<const uint16_t*>(data) + i));
    const __m128i bytes = _mm_maskz_loadu_epi8(m, static_cast<const uint8_t*>(data) + i);
    return to_float(_mm512_cvtepu8_epi32(bytes));
  }
  static void store_f32(void* data, int64_t i, int64_t n, F v) {
    float* to = static_cast<float*>(data) + i;
    if (n >= 16) {
      _mm512_storeu_ps(to, v);  // a later load cannot take its data from a masked store that is under way
    } else {
      _mm512_mask_storeu_ps(to, mask(n), v);
    }
  }
  static void store_bf16(void* data, int64_t i, int64_t n, F v) {
    const I bits = _mm512_castps_si512(v);
    const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), seti(1));
    const I rounded = addi(addi(bits, seti(0x7fff)), odd);
    const I quiet = _mm512_or_si512(bits, seti(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const I chosen = _mm512_mask_blend_epi32(nan, rounded, quiet);
    _mm256_mask_storeu_epi16(static_cast<uint16_t*>(data) + i, mask(n),
                             _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16)));
  }
  /// Rounded codes of M x NB vectors -> bytes at y + m * y_step: four vectors become one by saturating packs.
  struct Bytes {
    I zero, low;
  };
  static Bytes byte_limits(int32_t zero, float lo) {
    const int code = static_cast<int32_t>(round_even(lo)) + zero;
    return {_mm512_set1_epi16(static_cast<int16_t>(zero)), _mm512_set1_epi8(static_cast<char>(code))};
  }
  static I round(F v) { return _mm512_cvtps_epi32(v); }
  static I pack4(I a, I b, I c, I d, const Bytes& limits) {
    const I low = _mm512_adds_epi16(_mm512_packs_epi32(a, b), limits.zero);
    const I high = _mm512_adds_epi16(_mm512_packs_epi32(c, d), limits.zero);
    const I bytes = _mm512_max_epu8(_mm512_packus_epi16(low, high), limits.low);
    // Each 128-bit lane holds four channels of all four vectors.
    const I order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, bytes);
  }
  template <int M, int NB>
  static inline __attribute__((always_inline)) void store_bytes(I (&q)[M][NB], const Bytes& limits,
                                                                uint8_t* y, int64_t y_step) {
    constexpr int kVectors = M * NB;
    constexpr int kPerRow = NB;  // quarters of 16 bytes in a row
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; v += 4) {
      const auto at = [&](int i) __attribute__((always_inline)) {
        const int k = v + i < kVectors ? v + i : kVectors - 1;
        return q[k / NB][k % NB];
      };
      const I bytes = pack4(at(0), at(1), at(2), at(3), limits);
      uint8_t* row = y + v / kPerRow * y_step + v % kPerRow * 16;
      if constexpr (NB == 4) {
        _mm512_storeu_si512(row, bytes);
      } else if constexpr (NB == 2) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_castsi512_si256(bytes));
        if (v + 2 < kVectors) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + y_step), _mm512_extracti64x4_epi64(bytes, 1));
        }
      } else {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(row), _mm512_castsi512_si128(bytes));
        if (v + 1 < kVectors) {
          _mm_storeu_si128(reinterpret_cast<__m128i*>(row + y_step), _mm512_extracti32x4_epi32(bytes, 1));
        }
        if (v + 2 < kVectors) {
          _mm_storeu_si128(reinterpret_cast<__m128i*>(row + 2 * y_step), _mm512_extracti32x4_epi32(bytes, 2));
        }
        if (v + 3 < kVectors) {
          _mm_storeu_si128(reinterpret_cast<__m128i*>(row + 3 * y_step), _mm512_extracti32x4_epi32(bytes, 3));
        }
      }
    }
  }
  /// v is inside [-zero, 255 - zero]; rounds half to even.
  static void store_u8(void* data, int64_t i, int64_t n, F v, I zero) {
    const __m128i bytes = _mm512_cvtepi32_epi8(addi(_mm512_cvtps_epi32(v), zero));
    uint8_t* to = static_cast<uint8_t*>(data) + i;
    if (n >= 16) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
    } else {
      _mm_mask_storeu_epi8(to, mask(n), bytes);
    }
  }
};

}  // namespace
}  // namespace ulp::kernels
