// Bytes widened to 16 bits.
#include "ulp/kernels/conv/dot_neon.h"
// after the vector type
#include "ulp/kernels/linear/int8_block_body.h"

namespace ulp::kernels {

const Int8BlockKernels kInt8BlocksNeon = {4, 2, ULP_BLOCK_TILES(LaneI16, 2, 2)};

}  // namespace ulp::kernels
