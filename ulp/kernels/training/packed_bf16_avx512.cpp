#include "ulp/kernels/training/bf16_pairs.h"
#include "ulp/kernels/training/product_lanes_avx512.h"

#define ULP_PACKED_PRODUCT_OPS kPackedBf16Avx512
namespace ulp::kernels {
namespace {
using PackedWords = Bf16Words;
}
}  // namespace ulp::kernels
#include "ulp/kernels/training/packed_product_body.h"
