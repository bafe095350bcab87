// What every 64-bit Arm processor has: f32 by FMLA, bf16 widened to f32, u8 widened to 16 bits for SMLAL; depthwise.
#include "ulp/kernels/conv/dot_neon.h"
// after the vector type
#include "ulp/kernels/conv/depthwise_body.h"

namespace ulp::kernels {
namespace {

struct DepthU8Neon : IntSums<VecNeon> {
  static constexpr int kBytes = 1;
  static int32x4_t step(int32x4_t acc, const uint8_t* x, const void* w, int64_t i) {
    return vmlaq_s32(acc, VecNeon::load_u8(x), VecNeon::loadi(static_cast<const int32_t*>(w) + i));
  }
};

}  // namespace

// 32 registers: 24 sums, the inputs of six pixels and weights.
// clang-format off
#define ULP_TABLE(Dot) {{ULP_TILES_12(Dot, 1)}, {ULP_TILES_6(Dot, 2)}, {ULP_TILES_6(Dot, 4)}}
// clang-format on
const TileKernels kTilesF32Neon = {"f32_neon", DataType::f32, DataType::f32,      4,
                                   1,          {12, 6, 6},    ULP_TABLE(LaneF32), nullptr};
const TileKernels kTilesBf16Neon = {"bf16_neon", DataType::bf16, DataType::f32,      4,
                                    1,           {12, 6, 6},     ULP_TABLE(LaneF32), copy_bf16_to_f32};
const TileKernels kTilesU8Neon = {"u8_neon", DataType::u8, DataType::i16,      4,
                                  2,         {12, 6, 6},   ULP_TABLE(LaneI16), copy_u8_to_i16};
const DepthwiseKernels kDepthwiseNeon = {"neon", 4, depthwise<DepthF32<VecNeon>>,
                                         depthwise<DepthBf16<VecNeon>>, depthwise<DepthU8Neon>};

}  // namespace ulp::kernels
