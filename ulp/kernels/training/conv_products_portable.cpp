#include "ulp/kernels/training/product_lanes_portable.h"

#define ULP_CONV_PRODUCT_OPS kConvProductOpsPortable
#include "ulp/kernels/training/conv_products_body.h"
