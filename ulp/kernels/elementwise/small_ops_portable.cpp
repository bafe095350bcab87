#define ULP_SMALL_OPS kSmallOpsPortable
#include "ulp/kernels/elementwise/small_ops_body.h"
