#include "ulp/kernels/training/product_lanes_avx2.h"

#define ULP_LAYER_PRODUCT_OPS kLayerProductOpsAvx2
#include "ulp/kernels/training/layer_product_body.h"
