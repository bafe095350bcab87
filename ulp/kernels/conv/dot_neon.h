// Products of Advanced SIMD: f32 by FMLA, 16-bit numbers by SMLAL, a lane of the input at a time. For files of 64-bit Arm;
// everything has internal linkage.
#pragma once

#include "ulp/kernels/isa/vec_neon.h"
// after the vector type
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {
namespace {

struct LaneF32 : DotF32<VecNeon> {
  static constexpr bool kByLane = true;
  static int32x4_t input(const uint8_t* p) { return VecNeon::loadi(p); }
  static float32x4_t weights(int32x4_t b) { return vreinterpretq_f32_s32(b); }
  template <int kUnit>
  static float32x4_t dot_lane(float32x4_t acc, int32x4_t a, float32x4_t b) {
    return vfmaq_laneq_f32(acc, b, vreinterpretq_f32_s32(a), kUnit);
  }
};

/// Two 16-bit products a lane, one after the other.
struct LaneI16 : IntSums<VecNeon> {
  static constexpr bool kByLane = true;
  struct Pairs {
    int16x4_t first, second;  ///< of each lane
  };
  static int32x4_t input(const uint8_t* p) { return VecNeon::loadi(p); }
  static Pairs weights(int32x4_t b) {
    const int16x8_t words = vreinterpretq_s16_s32(b);
    return {vget_low_s16(vuzp1q_s16(words, words)), vget_low_s16(vuzp2q_s16(words, words))};
  }
  template <int kUnit>
  static int32x4_t dot_lane(int32x4_t acc, int32x4_t a, Pairs b) {
    const int16x8_t words = vreinterpretq_s16_s32(a);
    return vmlal_laneq_s16(vmlal_laneq_s16(acc, b.first, words, 2 * kUnit), b.second, words, 2 * kUnit + 1);
  }
  static int32x4_t dot(int32x4_t acc, int32x4_t a, int32x4_t b) { return dot_lane<0>(acc, a, weights(b)); }
};

}  // namespace
}  // namespace ulp::kernels
