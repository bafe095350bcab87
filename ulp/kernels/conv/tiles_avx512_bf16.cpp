// vdpbf16ps: two bf16 products a lane, summed in f32. Faster than widening on AMD, slower on Intel.
#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {
namespace {

struct DotBf16 : FloatSums<Vec512> {
  static __m512 dot(__m512 acc, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

}  // namespace

const TileKernels kTilesBf16Avx512Bf16 = {
    "bf16_avx512_bf16",
    DataType::bf16,
    DataType::bf16,
    16,
    2,
    {14, 14, 6},
    {{ULP_TILES_14(DotBf16, 1)}, {ULP_TILES_14(DotBf16, 2)}, {ULP_TILES_6(DotBf16, 4)}},
    nullptr};

}  // namespace ulp::kernels
