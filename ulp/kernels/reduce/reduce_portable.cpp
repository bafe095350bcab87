#define ULP_REDUCE_OPS kReduceOpsPortable
#include "ulp/kernels/reduce/reduce_body.h"
