#define ULP_MATMUL_OPS kMatmulOpsAvx512
#define ULP_VECTOR_BYTES 64
#define ULP_TILE_ROWS 12
#include "ulp/kernels/matmul/matmul_body.h"
