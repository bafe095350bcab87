#define ULP_OPTIMIZER_OPS kOptimizerOpsAvx512
#include "ulp/kernels/optimizer_body.h"
