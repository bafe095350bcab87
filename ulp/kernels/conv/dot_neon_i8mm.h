// USDOT: four products of bytes without a sign by bytes with one a lane, summed in int32. For files compiled with it;
// everything has internal linkage.
#pragma once

#include "ulp/kernels/isa/vec_neon.h"
// after the vector type
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {
namespace {

struct DotU8 : IntSums<VecNeon> {
  static int32x4_t dot(int32x4_t acc, int32x4_t a, int32x4_t b) {
    return vusdotq_s32(acc, vreinterpretq_u8_s32(a), vreinterpretq_s8_s32(b));
  }
};

}  // namespace
}  // namespace ulp::kernels
