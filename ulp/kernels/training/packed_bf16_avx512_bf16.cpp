// vdpbf16ps: sum + the product of the upper halves, then + that of the lower ones, each rounded once.
#include "ulp/kernels/training/packed_words.h"
#include "ulp/kernels/training/product_lanes_avx512.h"

namespace ulp::kernels {
namespace {

using PackedWords = Bf16Pairs;

struct PairLanes : ProductLanes {
  static F fma(F a, F b, F c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

}  // namespace
}  // namespace ulp::kernels

#define ULP_TILE_LANES PairLanes
#define ULP_PACKED_PRODUCT_OPS kPackedBf16Avx512Bf16
#include "ulp/kernels/training/packed_product_body.h"
