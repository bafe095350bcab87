#define ULP_CONVERT_OPS kConvertOpsAvx2
#include "ulp/kernels/convert_body.h"
