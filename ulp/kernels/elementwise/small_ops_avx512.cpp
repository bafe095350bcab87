#define ULP_SMALL_OPS kSmallOpsAvx512
#define ULP_VECTOR_BYTES 64
#include "ulp/kernels/elementwise/small_ops_body.h"
