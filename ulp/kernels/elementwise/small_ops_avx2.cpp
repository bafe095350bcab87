#define ULP_SMALL_OPS kSmallOpsAvx2
#include "ulp/kernels/elementwise/small_ops_body.h"
