// 8-bit tiles on SDOT.
#include "ulp/kernels/conv/dot_neon_dotprod.h"

namespace ulp::kernels {

const TileKernels kTilesU8NeonDotprod = {
    "u8_neon_dotprod",
    DataType::u8,
    DataType::u8,
    4,
    4,
    {12, 6, 6},
    {{ULP_TILES_12(DotS8, 1)}, {ULP_TILES_6(DotS8, 2)}, {ULP_TILES_6(DotS8, 4)}},
    nullptr,
    4,
    DotS8::kInputOffset};

}  // namespace ulp::kernels
