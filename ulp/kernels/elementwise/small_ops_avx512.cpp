#define ULP_SMALL_OPS kSmallOpsAvx512
#include "ulp/kernels/elementwise/small_ops_body.h"
