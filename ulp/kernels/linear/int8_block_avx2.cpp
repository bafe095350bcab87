// Bytes widened to 16 bits, as conv/tiles_avx2.cpp does.
#include "ulp/kernels/isa/vec256.h"
// after the vector type
#include "ulp/kernels/linear/int8_block_body.h"

namespace ulp::kernels {

const Int8BlockKernels kInt8BlocksAvx2 = {8, 2, ULP_BLOCK_TILES(DotI16<Vec256>, 2, 1)};

}  // namespace ulp::kernels
