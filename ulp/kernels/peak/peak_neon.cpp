#include <arm_neon.h>

#include "ulp/kernels/peak/peak_body.h"

namespace ulp::kernels {
namespace {

struct Fma {
  using V = float32x4_t;
  static constexpr int kChains = 24;
  V factor = vdupq_n_f32(0.5F), addend = vdupq_n_f32(0.25F);
  static V start(int i) { return vdupq_n_f32(static_cast<float>(i)); }
  V step(V sum) const {
    __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(sum) : "w"(factor), "w"(addend));
    return sum;
  }
  static V join(V a, V b) { return vaddq_f32(a, b); }
};

/// As the kernel of binary layers does: bytes are counted, and summed in 32 bits.
struct CountBits {
  using V = uint32x4_t;
  static constexpr int kChains = 20;
  V weights = vdupq_n_u32(0x12345678), input = vdupq_n_u32(0x0f070301);
  static V start(int i) { return vdupq_n_u32(static_cast<uint32_t>(i)); }
  V step(V sum) const {
    V counts;
    __asm__ volatile(
        "eor %1.16b, %2.16b, %3.16b\n\tcnt %1.16b, %1.16b\n\t"
        "uaddlp %1.8h, %1.16b\n\tuadalp %0.4s, %1.8h"
        : "+w"(sum), "=&w"(counts)
        : "w"(weights), "w"(input));
    return sum;
  }
  static V join(V a, V b) { return vaddq_u32(a, b); }
};

constexpr PeakLoop kLoops[] = {
    loop_of<Fma>(MathType::f32, "fmla, 128 bits", 2 * 4),
    loop_of<CountBits>(MathType::binary, "eor, cnt, uaddlp and uadalp, 128 bits", 2 * 128),
};

}  // namespace

const PeakTable kPeakNeon = {"neon", kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace ulp::kernels
