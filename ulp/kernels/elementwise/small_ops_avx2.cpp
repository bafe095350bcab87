#define ULP_SMALL_OPS kSmallOpsAvx2
#define ULP_VECTOR_BYTES 32
#include "ulp/kernels/elementwise/small_ops_body.h"
