// AVX2 and FMA: f32, bf16 widened to f32, u8 widened to 16 bits.
#include "ulp/kernels/isa/vec256.h"
// after the vector type
#include "ulp/kernels/sparse/block_body.h"

namespace ulp::kernels {

using F32 = DotF32<Vec256>;
using I16 = DotI16<Vec256>;
// A panel is two vectors: twelve sums, the weights and the input in sixteen registers.
// clang-format off
#define ULP_TABLE(Dot, U) {{ULP_BLOCKS_6(Dot, U, 1)}, {ULP_BLOCKS_3(Dot, U, 2)}, {}}
const BlockKernels kBlocksU8Avx2 = {"s8_16x4_avx2", DataType::u8, DataType::i16, 2, 2, {6, 3, 0},
                                    ULP_TABLE(I16, 2), copy_u8_to_i16, interleave_rows};
const BlockKernels kBlocksF32Avx2 = {"f32_16x1_avx2", DataType::f32, DataType::f32, 1, 1, {6, 3, 0},
                                     ULP_TABLE(F32, 1), nullptr, interleave_rows};
const BlockKernels kBlocksBf16Avx2 = {"bf16_16x1_avx2", DataType::bf16, DataType::f32, 1, 1, {6, 3, 0},
                                      ULP_TABLE(F32, 1), copy_bf16_to_f32, interleave_rows};
// clang-format on

}  // namespace ulp::kernels
