#define ULP_POINTWISE_OPS kPointwiseOpsAvx2
#include "ulp/kernels/pointwise/pointwise_body.h"
