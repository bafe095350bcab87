#include "ulp/kernels/training/bf16_pairs.h"
#include "ulp/kernels/training/product_lanes_portable.h"

#define ULP_PACKED_PRODUCT_OPS kPackedFloatsPortable
namespace ulp::kernels {
namespace {
using PackedWords = FloatWords;
}
}  // namespace ulp::kernels
#include "ulp/kernels/training/packed_product_body.h"
