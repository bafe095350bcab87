#define ULP_CONVERT_OPS kConvertOpsAvx512
#include "ulp/kernels/convert/convert_body.h"
