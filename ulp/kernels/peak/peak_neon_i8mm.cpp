#include <arm_neon.h>

#include "ulp/kernels/peak/peak_body.h"

namespace ulp::kernels {
namespace {

struct MultiplyMatrices {
  using V = int32x4_t;
  static constexpr int kChains = 24;
  uint32x4_t a = vdupq_n_u32(0x04030201), b = vdupq_n_u32(0x01020304);
  static V start(int i) { return vdupq_n_s32(i); }
  V step(V sum) const {
    __asm__ volatile("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
  }
  static V join(V a, V b) { return vaddq_s32(a, b); }
};

constexpr PeakLoop kLoops[] = {loop_of<MultiplyMatrices>(MathType::int8, "usmmla, 128 bits", 2 * 32)};

}  // namespace

const PeakTable kPeakNeonI8mm = {"neon_i8mm", kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace ulp::kernels
