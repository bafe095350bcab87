// Vectors of AVX-512 for the products of training steps. Included by files of that instruction set alone;
// everything here has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ulp/kernels/training/transpose8_avx2.h"

namespace ulp::kernels {
namespace {

struct ProductLanes {
  using F = __m512;
  static constexpr int kLanes = 16;
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static F set1(float v) { return _mm512_set1_ps(v); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static __mmask16 mask(int64_t n) { return static_cast<__mmask16>((1U << n) - 1U); }
  static F load_first(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static void store_first(float* p, F v, int64_t n) { _mm512_mask_storeu_ps(p, mask(n), v); }
  static void transpose8(const float* from, int64_t from_step, float* to, int64_t to_step) {
    transpose8_avx2(from, from_step, to, to_step);
  }
};

}  // namespace
}  // namespace ulp::kernels
