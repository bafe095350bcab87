// Bytes widened to 16 bits, as conv/tiles_avx512.cpp does.
#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/linear/int8_block_body.h"

namespace ulp::kernels {

const Int8BlockKernels kInt8BlocksAvx512 = {16, 2, ULP_BLOCK_TILES(DotI16<Vec512>, 2, 2)};

}  // namespace ulp::kernels
