// vpdpbusd: a block of 16 outputs by 4 inputs is one register.
#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/conv/dot_vnni.h"
#include "ulp/kernels/sparse/block_body.h"

namespace ulp::kernels {

// clang-format off
const BlockKernels kBlocksU8Avx512Vnni = {
    "s8_16x4_avx512_vnni", DataType::u8, DataType::u8, 4, 1, {16, 8, 4},
    {{ULP_BLOCKS_16(DotU8, 1, 1)}, {ULP_BLOCKS_8(DotU8, 1, 2)}, {ULP_BLOCKS_4(DotU8, 1, 4)}},
    nullptr, interleave_rows};
// clang-format on

}  // namespace ulp::kernels
