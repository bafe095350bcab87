#include "ulp/kernels/training/pair_lanes_avx512_bf16.h"

#define ULP_TILE_LANES PairLanes
#define ULP_CONV_OF_WORDS
#define ULP_CONV_PRODUCT_OPS kConvWordOpsAvx512Bf16
#include "ulp/kernels/training/conv_products_body.h"
