#include "ulp/kernels/training/product_lanes_portable.h"

#define ULP_LAYER_PRODUCT_OPS kLayerProductOpsPortable
#include "ulp/kernels/training/layer_product_body.h"
