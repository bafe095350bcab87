#include "ulp/kernels/conv/dot_neon_dotprod.h"
// after the vector type
#include "ulp/kernels/linear/int8_block_body.h"

namespace ulp::kernels {

const Int8BlockKernels kInt8BlocksNeonDotprod = {4, 4, ULP_BLOCK_TILES(DotS8, 1, 2), DotS8::kInputOffset};

}  // namespace ulp::kernels
