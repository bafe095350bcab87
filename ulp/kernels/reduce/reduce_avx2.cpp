#define ULP_REDUCE_OPS kReduceOpsAvx2
#include "ulp/kernels/reduce/reduce_body.h"
