#include "ulp/kernels/training/bf16_pairs.h"
#include "ulp/kernels/training/product_lanes_portable.h"

#define ULP_PACKED_PRODUCT_OPS kPackedBf16Portable
namespace ulp::kernels {
namespace {
using PackedWords = Bf16Words;
}
}  // namespace ulp::kernels
#include "ulp/kernels/training/packed_product_body.h"
