#include "ulp/kernels/conv/dot_neon_i8mm.h"
// after the vector type
#include "ulp/kernels/linear/int8_block_body.h"

namespace ulp::kernels {

const Int8BlockKernels kInt8BlocksNeonI8mm = {4, 4, ULP_BLOCK_TILES(DotU8, 1, 2)};

}  // namespace ulp::kernels
