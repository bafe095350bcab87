#include <arm_neon.h>

#include "ulp/kernels/peak/peak_body.h"

namespace ulp::kernels {
namespace {

struct DotBytes {
  using V = int32x4_t;
  static constexpr int kChains = 24;
  uint32x4_t a = vdupq_n_u32(0x04030201), b = vdupq_n_u32(0x01020304);
  static V start(int i) { return vdupq_n_s32(i); }
  V step(V sum) const {
    __asm__ volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
  }
  static V join(V a, V b) { return vaddq_s32(a, b); }
};

constexpr PeakLoop kLoops[] = {loop_of<DotBytes>(MathType::int8, "sdot, 128 bits", 2 * 16)};

}  // namespace

const PeakTable kPeakNeonDotprod = {"neon_dotprod", kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace ulp::kernels
