#include "ulp/kernels/conv/dot_neon_i8mm.h"
// after the vector type
#include "ulp/kernels/sparse/block_body.h"

namespace ulp::kernels {

// clang-format off
const BlockKernels kBlocksU8NeonI8mm = {"s8_16x4_neon_i8mm", DataType::u8, DataType::u8, 4, 1, {6, 3, 0},
                                           {{ULP_BLOCKS_6(DotU8, 1, 1)}, {ULP_BLOCKS_3(DotU8, 1, 2)}, {}}, nullptr, interleave_rows};
// clang-format on

}  // namespace ulp::kernels
