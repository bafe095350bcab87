#define ULP_POINTWISE_OPS kPointwiseOpsAvx512
#include "ulp/kernels/pointwise/pointwise_body.h"
