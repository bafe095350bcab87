// AVX2 and FMA: f32, bf16 widened to f32, u8 widened to 16 bits (vpmaddubsw would saturate); depthwise. Weights stay in
// bf16 and i8 until they are read.
#include "ulp/kernels/isa/vec256.h"
// after the vector type
#include "ulp/kernels/conv/depthwise_body.h"
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {

using F32 = DotF32<Vec256>;
using Bf16 = DotF32NarrowBf16<Vec256>;
using I16 = DotI16<Vec256>;
using I8 = DotI16NarrowI8<Vec256>;
// Sixteen registers: twelve accumulators, the weights and the input. vpmaddwd needs one more for its product. A pixel or two
// leave registers for four panels, which come from memory side by side.
// clang-format off
#define ULP_TABLE(Dot) {{ULP_TILES_12(Dot, 1)}, {ULP_TILES_6(Dot, 2)}, {nullptr, tile<Dot, 1, 4>, tile<Dot, 2, 4>}}
// clang-format on
const TileKernels kTilesF32Avx2 = {"f32_avx2", DataType::f32, DataType::f32,  8,
                                   1,          {12, 6, 2},    ULP_TABLE(F32), nullptr};
const TileKernels kTilesBf16Avx2 = {"bf16_avx2", DataType::bf16,  DataType::f32,    8, 1,
                                    {12, 6, 2},  ULP_TABLE(Bf16), copy_bf16_to_f32, 4, 0,
                                    true};
const TileKernels kTilesU8Avx2 = {
    "u8_avx2", DataType::u8, DataType::i16, 8, 2, {12, 6, 2}, ULP_TABLE(I8), copy_u8_to_i16, 4, 0, true};
const TileKernels kTilesWideU8Avx2 = {"u8_avx2", DataType::u8, DataType::i16,  8,
                                      2,         {12, 6, 2},   ULP_TABLE(I16), copy_u8_to_i16};
const DepthwiseKernels kDepthwiseAvx2 = {"avx2", 8, depthwise<DepthF32<Vec256>>, depthwise<DepthBf16<Vec256>>,
                                         depthwise<DepthU8<Vec256>>};

}  // namespace ulp::kernels
