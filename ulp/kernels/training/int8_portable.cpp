#define ULP_INT8_OPS kInt8OpsPortable
#include "ulp/kernels/training/int8_body.h"
