// SDOT: four products of bytes with a sign a lane, summed in int32. Bytes of the input lose 128 on the way. For files
// compiled with it; everything has internal linkage.
#pragma once

#include "ulp/kernels/isa/vec_neon.h"
// after the vector type
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {
namespace {

struct DotS8 : IntSums<VecNeon> {
  static constexpr bool kByLane = true;
  static constexpr int32_t kInputOffset = 128;
  static int32x4_t shifted(int32x4_t a) {
    return veorq_s32(a, vdupq_n_s32(static_cast<int32_t>(0x80808080)));
  }
  static int32x4_t input(const uint8_t* p) { return shifted(VecNeon::loadi(p)); }
  static int8x16_t weights(int32x4_t b) { return vreinterpretq_s8_s32(b); }
  template <int kUnit>
  static int32x4_t dot_lane(int32x4_t acc, int32x4_t a, int8x16_t b) {
    return vdotq_laneq_s32(acc, b, vreinterpretq_s8_s32(a), kUnit);
  }
  static int32x4_t dot(int32x4_t acc, int32x4_t a, int32x4_t b) {
    return vdotq_s32(acc, weights(b), vreinterpretq_s8_s32(shifted(a)));
  }
};

}  // namespace
}  // namespace ulp::kernels
