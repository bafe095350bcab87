// 8 x 8 floats, transposed in registers of 32 bytes; for files compiled for AVX2 and above. Internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace ulp::kernels {
namespace {

/// to[c * to_step + r] = from[r * from_step + c] for r, c < 8.
inline void transpose8_avx2(const float* from, int64_t from_step, float* to, int64_t to_step) {
  // The halves of rows r and r + 4 side by side: the rest stays inside halves.
  __m256 half[8];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256 low = _mm256_castps128_ps256(_mm_loadu_ps(from + r * from_step + 4 * h));
      half[r + 4 * h] = _mm256_insertf128_ps(low, _mm_loadu_ps(from + (r + 4) * from_step + 4 * h), 1);
    }
  }
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m256 a = _mm256_unpacklo_ps(half[4 * h], half[4 * h + 1]);
    const __m256 b = _mm256_unpackhi_ps(half[4 * h], half[4 * h + 1]);
    const __m256 c = _mm256_unpacklo_ps(half[4 * h + 2], half[4 * h + 3]);
    const __m256 d = _mm256_unpackhi_ps(half[4 * h + 2], half[4 * h + 3]);
    float* row = to + 4 * h * to_step;
    _mm256_storeu_ps(row, _mm256_shuffle_ps(a, c, 0x44));
    _mm256_storeu_ps(row + to_step, _mm256_shuffle_ps(a, c, 0xee));
    _mm256_storeu_ps(row + 2 * to_step, _mm256_shuffle_ps(b, d, 0x44));
    _mm256_storeu_ps(row + 3 * to_step, _mm256_shuffle_ps(b, d, 0xee));
  }
}

}  // namespace
}  // namespace ulp::kernels
