#include <arm_neon.h>

#include "ulp/kernels/binary/sign_body.h"

namespace ulp::kernels {
namespace {

struct SignsNeon {
  static constexpr int kLanes = 8;
  struct Eight {
    float32x4_t low, high;
  };
  static Eight load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  static Eight zero() { return {vdupq_n_f32(0), vdupq_n_f32(0)}; }
  /// A bit for each x that is not >= its threshold.
  static void store_below(uint8_t* to, Eight x, Eight threshold, const uint8_t* flip) {
    const uint32x4_t low_places = {1, 2, 4, 8}, high_places = {16, 32, 64, 128};
    const uint32x4_t low = vbicq_u32(low_places, vcgeq_f32(x.low, threshold.low));
    const uint32x4_t high = vbicq_u32(high_places, vcgeq_f32(x.high, threshold.high));
    const uint32_t bits = vaddvq_u32(vorrq_u32(low, high));
    *to = static_cast<uint8_t>(bits ^ (flip == nullptr ? 0U : *flip));
  }
};

}  // namespace

SignFn pack_signs_neon() {
  return pack<SignsNeon>;
}

}  // namespace ulp::kernels
