#define ULP_OPTIMIZER_OPS kOptimizerOpsPortable
#include "ulp/kernels/training/optimizer_body.h"
