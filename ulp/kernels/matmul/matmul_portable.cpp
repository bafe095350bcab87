#define ULP_MATMUL_OPS kMatmulOpsPortable
#define ULP_VECTOR_BYTES 16
#define ULP_TILE_ROWS 4
#include "ulp/kernels/matmul/matmul_body.h"
