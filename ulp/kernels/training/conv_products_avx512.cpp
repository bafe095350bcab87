#include "ulp/kernels/training/product_lanes_avx512.h"

#define ULP_CONV_PRODUCT_OPS kConvProductOpsAvx512
#include "ulp/kernels/training/conv_products_body.h"
