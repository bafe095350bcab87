#define ULP_OPTIMIZER_OPS kOptimizerOpsPortable
#include "ulp/kernels/optimizer_body.h"
