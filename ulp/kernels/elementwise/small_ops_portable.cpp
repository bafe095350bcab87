#define ULP_SMALL_OPS kSmallOpsPortable
#define ULP_VECTOR_BYTES 16
#include "ulp/kernels/elementwise/small_ops_body.h"
