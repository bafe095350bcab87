#include <immintrin.h>

#include "ulp/kernels/peak/peak_body.h"

namespace ulp::kernels {
namespace {

struct DotBf16 {
  using V = __m512;
  static constexpr int kChains = 20;
  __m512i a = _mm512_set1_epi32(0x3c003c00), b = _mm512_set1_epi32(0x3c803c80);
  static V start(int i) { return _mm512_set1_ps(static_cast<float>(i)); }
  V step(V sum) const {
    __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
  static V join(V a, V b) { return _mm512_add_ps(a, b); }
};

constexpr PeakLoop kLoops[] = {loop_of<DotBf16>(MathType::bf16, "vdpbf16ps, 512 bits", 2 * 32)};

}  // namespace

const PeakTable kPeakAvx512Bf16 = {"avx512_bf16", kLoops, 1};

}  // namespace ulp::kernels
