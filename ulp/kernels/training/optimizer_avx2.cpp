#define ULP_OPTIMIZER_OPS kOptimizerOpsAvx2
#include "ulp/kernels/training/optimizer_body.h"
