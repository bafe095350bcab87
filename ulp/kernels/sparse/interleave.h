// Rows of 4-byte units -> the units of all rows side by side. Everything has internal linkage.
#pragma once

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include <cstdint>

namespace ulp::kernels {
namespace {

#ifdef __AVX512F__

/// Transposes 16 rows of 16 units.
inline __attribute__((always_inline)) void transpose16(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // r[4 g + j] holds, in lane l of 128 bits, unit 4 l + j of the rows 4 g to 4 g + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
    const __m512i low23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    t[j] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    t[8 + j] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    t[12 + j] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

void interleave_rows(const uint8_t* rows, int64_t step, int64_t count, int64_t units, uint8_t* to) {
  const auto stored = static_cast<__mmask16>((1U << count) - 1U);
  for (int64_t unit = 0; unit < units; unit += 16) {
    const int64_t left = units - unit < 16 ? units - unit : 16;
    const auto loaded = static_cast<__mmask16>((1U << left) - 1U);
    __m512i r[16];
#pragma GCC unroll 16
    for (int m = 0; m < 16; ++m) {
      r[m] =
          m < count ? _mm512_maskz_loadu_epi32(loaded, rows + m * step + unit * 4) : _mm512_setzero_si512();
    }
    transpose16(r);
    uint8_t* at = to + unit * count * 4;
    if (left == 16 && count == 16) {
#pragma GCC unroll 16
      for (int u = 0; u < 16; ++u) _mm512_storeu_si512(at + u * 64, r[u]);
      continue;
    }
    alignas(64) __m512i lines[16];
#pragma GCC unroll 16
    for (int u = 0; u < 16; ++u) lines[u] = r[u];
    for (int64_t u = 0; u < left; ++u) _mm512_mask_storeu_epi32(at + u * count * 4, stored, lines[u]);
  }
}

#else

void interleave_rows(const uint8_t* rows, int64_t step, int64_t count, int64_t units, uint8_t* to) {
  for (int64_t unit = 0; unit < units; ++unit) {
    for (int64_t m = 0; m < count; ++m)
      __builtin_memcpy(to + (unit * count + m) * 4, rows + m * step + unit * 4, 4);
  }
}

#endif

}  // namespace
}  // namespace ulp::kernels
