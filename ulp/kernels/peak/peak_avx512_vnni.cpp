#include <immintrin.h>

#include "ulp/kernels/peak/peak_body.h"

namespace ulp::kernels {
namespace {

struct DotBytes {
  using V = __m512i;
  static constexpr int kChains = 20;
  V a = _mm512_set1_epi32(0x04030201), b = _mm512_set1_epi32(0x01020304);
  static V start(int i) { return _mm512_set1_epi32(i); }
  V step(V sum) const {
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
  static V join(V a, V b) { return _mm512_add_epi32(a, b); }
};

constexpr PeakLoop kLoops[] = {loop_of<DotBytes>(MathType::int8, "vpdpbusd, 512 bits", 2 * 64)};

}  // namespace

const PeakTable kPeakAvx512Vnni = {"avx512_vnni", kLoops, 1};

}  // namespace ulp::kernels
