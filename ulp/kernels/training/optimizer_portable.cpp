#define ULP_OPTIMIZER_OPS kOptimizerOpsPortable
#define ULP_VECTOR_BYTES 16
#include "ulp/kernels/training/optimizer_body.h"
