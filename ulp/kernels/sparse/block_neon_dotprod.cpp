#include "ulp/kernels/conv/dot_neon_dotprod.h"
// after the vector type
#include "ulp/kernels/sparse/block_body.h"

namespace ulp::kernels {

// clang-format off
const BlockKernels kBlocksU8NeonDotprod = {"s8_16x4_neon_dotprod", DataType::u8, DataType::u8, 4, 1, {6, 3, 0},
                                           {{ULP_BLOCKS_6(DotS8, 1, 1)}, {ULP_BLOCKS_3(DotS8, 1, 2)}, {}}, nullptr, interleave_rows,
                                           DotS8::kInputOffset};
// clang-format on

}  // namespace ulp::kernels
