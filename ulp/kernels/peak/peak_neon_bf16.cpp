#include <arm_neon.h>

#include "ulp/kernels/peak/peak_body.h"

namespace ulp::kernels {
namespace {

struct MultiplyMatrices {
  using V = float32x4_t;
  static constexpr int kChains = 24;
  uint32x4_t a = vdupq_n_u32(0x3c003c00), b = vdupq_n_u32(0x3c803c80);
  static V start(int i) { return vdupq_n_f32(static_cast<float>(i)); }
  V step(V sum) const {
    __asm__ volatile("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
  }
  static V join(V a, V b) { return vaddq_f32(a, b); }
};

constexpr PeakLoop kLoops[] = {loop_of<MultiplyMatrices>(MathType::bf16, "bfmmla, 128 bits", 2 * 16)};

}  // namespace

const PeakTable kPeakNeonBf16 = {"neon_bf16", kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace ulp::kernels
