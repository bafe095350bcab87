#define ULP_POINTWISE_OPS kPointwiseOpsPortable
#include "ulp/kernels/pointwise/pointwise_body.h"
