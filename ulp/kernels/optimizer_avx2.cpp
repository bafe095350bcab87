#define ULP_OPTIMIZER_OPS kOptimizerOpsAvx2
#include "ulp/kernels/optimizer_body.h"
