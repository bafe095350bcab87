// f32, bf16 widened to f32, u8 widened to 16 bits.
#include "ulp/kernels/conv/dot_neon.h"
// after the vector type
#include "ulp/kernels/sparse/block_body.h"

namespace ulp::kernels {

// A panel is four vectors: 24 sums, the weights and the input in 32 registers.
// clang-format off
#define ULP_TABLE(Dot, U) {{ULP_BLOCKS_6(Dot, U, 1)}, {ULP_BLOCKS_3(Dot, U, 2)}, {}}
const BlockKernels kBlocksU8Neon = {"s8_16x4_neon", DataType::u8, DataType::i16, 2, 2, {6, 3, 0},
                                    ULP_TABLE(LaneI16, 2), copy_u8_to_i16, interleave_rows};
const BlockKernels kBlocksF32Neon = {"f32_16x1_neon", DataType::f32, DataType::f32, 1, 1, {6, 3, 0},
                                     ULP_TABLE(LaneF32, 1), nullptr, interleave_rows};
const BlockKernels kBlocksBf16Neon = {"bf16_16x1_neon", DataType::bf16, DataType::f32, 1, 1, {6, 3, 0},
                                      ULP_TABLE(LaneF32, 1), copy_bf16_to_f32, interleave_rows};
// clang-format on

}  // namespace ulp::kernels
