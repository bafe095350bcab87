// AVX-512 without extensions: f32, bf16 widened to f32, u8 widened to 16 bits; depthwise. Weights stay in bf16 until they are
// read.
#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/conv/depthwise_body.h"
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {

using F32 = DotF32<Vec512>;
using Bf16 = DotF32NarrowBf16<Vec512>;
using I16 = DotI16<Vec512>;
// clang-format off
#define ULP_TABLE(Dot) {{ULP_TILES_14(Dot, 1)}, {ULP_TILES_14(Dot, 2)}, {ULP_TILES_6(Dot, 4)}}
// clang-format on
const TileKernels kTilesF32Avx512 = {"f32_avx512", DataType::f32,  DataType::f32, 16, 1,
                                     {14, 14, 6},  ULP_TABLE(F32), nullptr};
// Many pixels are taken by the tiles of f32.
const TileKernels kTilesBf16Avx512 = {
    "bf16_avx512",
    DataType::bf16,
    DataType::f32,
    16,
    1,
    {6, 12, 1},
    {{ULP_TILES_6(Bf16, 1)}, {ULP_TILES_12(Bf16, 2)}, {nullptr, tile<Bf16, 1, 4>}},
    copy_bf16_to_f32,
    4,
    0,
    true,
    &kTilesF32Avx512,
    widen_weights<Vec512>};
const TileKernels kTilesU8Avx512 = {"u8_avx512", DataType::u8, DataType::i16,  16,
                                    2,           {14, 14, 6},  ULP_TABLE(I16), copy_u8_to_i16};
const DepthwiseKernels kDepthwiseAvx512 = {"avx512", 16, depthwise<DepthF32<Vec512>>,
                                           depthwise<DepthBf16<Vec512>>, depthwise<DepthU8<Vec512>>};

}  // namespace ulp::kernels
