// vpdpbusd: four products of unsigned by signed bytes a lane, summed in int32 without saturation.
#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {
namespace {

struct DotU8 : IntSums<Vec512> {
  static __m512i dot(__m512i acc, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(acc, a, b); }
};

}  // namespace

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
