// Vectors of AVX2 for the products of training steps. Included by files of that instruction set alone;
// everything here has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ulp/kernels/training/transpose8_avx2.h"

namespace ulp::kernels {
namespace {

struct ProductLanes {
  using F = __m256;
  static constexpr int kLanes = 8;
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static F set1(float v) { return _mm256_set1_ps(v); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static __m256i mask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F load_first(const float* p, int64_t n) { return _mm256_maskload_ps(p, mask(n)); }
  /// Masked stores take some twenty cycles on some processors.
  static void store_first(float* p, F v, int64_t n) {
    __m128 part = _mm256_castps256_ps128(v);
    if (n >= 4) {
      _mm_storeu_ps(p, part);
      part = _mm256_extractf128_ps(v, 1);
      p += 4;
      n -= 4;
    }
    if (n >= 2) {
      _mm_storel_pi(reinterpret_cast<__m64*>(p), part);
      part = _mm_movehl_ps(part, part);
      p += 2;
      n -= 2;
    }
    if (n > 0) _mm_store_ss(p, part);
  }
  static void transpose8(const float* from, int64_t from_step, float* to, int64_t to_step) {
    transpose8_avx2(from, from_step, to, to_step);
  }
};

}  // namespace
}  // namespace ulp::kernels
