#include "ulp/kernels/training/bf16_pairs.h"
#include "ulp/kernels/training/pair_lanes_avx512_bf16.h"

#define ULP_TILE_LANES PairLanes
#define ULP_PACKED_PRODUCT_OPS kPackedBf16Avx512Bf16
namespace ulp::kernels {
namespace {
using PackedWords = Bf16Pairs;
}
}  // namespace ulp::kernels
#include "ulp/kernels/training/packed_product_body.h"
