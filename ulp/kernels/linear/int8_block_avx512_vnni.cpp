// Bytes on vpdpbusd.
#include "ulp/kernels/conv/dot_vnni.h"
// after the dot product
#include "ulp/kernels/linear/int8_block_body.h"

namespace ulp::kernels {

const Int8BlockKernels kInt8BlocksAvx512Vnni = {16, 4, ULP_BLOCK_TILES(DotU8, 1, 2)};

}  // namespace ulp::kernels
