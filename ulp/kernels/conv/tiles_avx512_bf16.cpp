// vdpbf16ps: two bf16 products a lane, summed in f32. Faster than widening on AMD, slower on Intel.
#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/conv/depthwise_body.h"
#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {
namespace {

/// Rounds to bf16 in one instruction, which takes subnormal numbers for zero, as vdpbf16ps does.
struct Vec512Bf16 : Vec512 {
  static void store_bf16(void* data, int64_t i, int64_t n, F v) {
    const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
    uint16_t* to = static_cast<uint16_t*>(data) + i;
    if (n >= 16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
    } else {
      _mm256_mask_storeu_epi16(to, mask(n), rounded);
    }
  }
};

struct DotBf16 : FloatSums<Vec512Bf16> {
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
const DepthwiseKernels kDepthwiseAvx512Bf16 = {"avx512_bf16", 16, nullptr, depthwise<DepthBf16<Vec512Bf16>>,
                                               nullptr};

}  // namespace ulp::kernels
