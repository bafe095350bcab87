#define ULP_SMALL_OPS kSmallOpsPortable
#include "ulp/kernels/small_ops_body.h"
