#define ULP_MATMUL_OPS kMatmulOpsNeon
#define ULP_VECTOR_BYTES 16
#define ULP_TILE_ROWS 12
#include "ulp/kernels/matmul/matmul_body.h"
