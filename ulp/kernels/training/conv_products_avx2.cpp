#include "ulp/kernels/training/product_lanes_avx2.h"

#define ULP_CONV_PRODUCT_OPS kConvProductOpsAvx2
#include "ulp/kernels/training/conv_products_body.h"
