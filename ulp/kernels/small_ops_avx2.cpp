#define ULP_SMALL_OPS kSmallOpsAvx2
#include "ulp/kernels/small_ops_body.h"
