#define ULP_OPTIMIZER_OPS kOptimizerOpsAvx2
#define ULP_VECTOR_BYTES 32
#include "ulp/kernels/training/optimizer_body.h"
