#include "ulp/kernels/training/product_lanes_avx512.h"

#define ULP_LAYER_PRODUCT_OPS kLayerProductOpsAvx512
#include "ulp/kernels/training/layer_product_body.h"
