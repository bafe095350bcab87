#include <immintrin.h>

#include "ulp/kernels/peak/peak_body.h"

namespace ulp::kernels {
namespace {

struct CountBits {
  using V = __m512i;
  static constexpr int kChains = 20;
  V a = _mm512_set1_epi32(0x04030201), b = _mm512_set1_epi32(0x01020304);
  static V start(int i) { return _mm512_set1_epi64(i); }
  V step(V sum) const {
    V counts;
    __asm__ volatile("vpxorq %2, %3, %1\n\tvpopcntq %1, %1\n\tvpaddq %1, %0, %0"
                     : "+v"(sum), "=&v"(counts)
                     : "v"(a), "v"(b));
    return sum;
  }
  static V join(V a, V b) { return _mm512_add_epi64(a, b); }
};

constexpr PeakLoop kLoops[] = {
    loop_of<CountBits>(MathType::binary, "vpxorq, vpopcntq and vpaddq, 512 bits", 2 * 512)};

}  // namespace

const PeakTable kPeakAvx512Vpopcntdq = {"avx512_vpopcntdq", kLoops, 1};

}  // namespace ulp::kernels
