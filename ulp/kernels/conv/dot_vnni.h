// vpdpbusd: four products of unsigned by signed bytes a lane, summed in int32 without saturation. For files compiled with
// it; everything has internal linkage.
#pragma once

#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {
namespace {

struct DotU8 : IntSums<Vec512> {
  static __m512i dot(__m512i acc, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(acc, a, b); }
};

}  // namespace
}  // namespace ulp::kernels
