// AVX2 and FMA: f32, bf16 widened to f32, u8 widened to 16 bits (vpmaddubsw would saturate); depthwise.
#include "ulp/kernels/isa/vec256.h"
// after the vector type
#include "ulp/kernels/conv/depthwise_body.h"
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {

using F32 = DotF32<Vec256>;
using I16 = DotI16<Vec256>;
// Sixteen registers: twelve accumulators, the weights and the input. vpmaddwd needs one more for its product.
// clang-format off
#define ULP_TABLE(Dot) {{ULP_TILES_12(Dot, 1)}, {ULP_TILES_6(Dot, 2)}, {}}
// clang-format on
const TileKernels kTilesF32Avx2 = {"f32_avx2", DataType::f32, DataType::f32,  8,
                                   1,          {12, 6, 0},    ULP_TABLE(F32), nullptr};
const TileKernels kTilesBf16Avx2 = {"bf16_avx2", DataType::bf16, DataType::f32,  8,
                                    1,           {12, 6, 0},     ULP_TABLE(F32), copy_bf16_to_f32};
const TileKernels kTilesU8Avx2 = {"u8_avx2", DataType::u8, DataType::i16,  8,
                                  2,         {12, 6, 0},   ULP_TABLE(I16), copy_u8_to_i16};
const DepthwiseKernels kDepthwiseAvx2 = {"avx2", 8, depthwise<DepthF32<Vec256>>, depthwise<DepthBf16<Vec256>>,
                                         depthwise<DepthU8<Vec256>>};

}  // namespace ulp::kernels
