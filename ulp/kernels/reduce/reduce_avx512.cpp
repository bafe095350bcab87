#define ULP_REDUCE_OPS kReduceOpsAvx512
#include "ulp/kernels/reduce/reduce_body.h"
