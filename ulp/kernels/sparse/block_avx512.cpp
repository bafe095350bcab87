// AVX-512 without extensions: f32, bf16 widened to f32, u8 widened to 16 bits.
#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/sparse/block_body.h"

namespace ulp::kernels {

using F32 = DotF32<Vec512>;
using I16 = DotI16<Vec512>;
// clang-format off
#define ULP_TABLE(Dot, U) {{ULP_BLOCKS_16(Dot, U, 1)}, {ULP_BLOCKS_8(Dot, U, 2)}, {ULP_BLOCKS_4(Dot, U, 4)}}
const BlockKernels kBlocksU8Avx512 = {"s8_16x4_avx512", DataType::u8, DataType::i16, 2, 2, {16, 8, 4},
                                      ULP_TABLE(I16, 2), copy_u8_to_i16, interleave_rows};
const BlockKernels kBlocksF32Avx512 = {"f32_16x1_avx512", DataType::f32, DataType::f32, 1, 1, {16, 8, 4},
                                       ULP_TABLE(F32, 1), nullptr, interleave_rows};
const BlockKernels kBlocksBf16Avx512 = {"bf16_16x1_avx512", DataType::bf16, DataType::f32, 1, 1, {16, 8, 4},
                                        ULP_TABLE(F32, 1), copy_bf16_to_f32, interleave_rows};
// clang-format on

}  // namespace ulp::kernels
