#define ULP_MATMUL_OPS kMatmulOpsAvx2
#define ULP_VECTOR_BYTES 32
#define ULP_TILE_ROWS 6
#include "ulp/kernels/matmul/matmul_body.h"
