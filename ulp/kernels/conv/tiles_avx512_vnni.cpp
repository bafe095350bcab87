// 8-bit tiles on vpdpbusd.
#include "ulp/kernels/conv/dot_vnni.h"

namespace ulp::kernels {

const TileKernels kTilesU8Avx512Vnni = {
    "u8_avx512_vnni",
    DataType::u8,
    DataType::u8,
    16,
    4,
    {14, 14, 6},
    {{ULP_TILES_14(DotU8, 1)}, {ULP_TILES_14(DotU8, 2)}, {ULP_TILES_6(DotU8, 4)}},
    nullptr};

}  // namespace ulp::kernels
