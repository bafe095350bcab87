#define ULP_INT8_OPS kInt8OpsAvx2
#include "ulp/kernels/training/int8_body.h"
