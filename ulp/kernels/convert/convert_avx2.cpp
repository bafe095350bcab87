#define ULP_CONVERT_OPS kConvertOpsAvx2
#include "ulp/kernels/convert/convert_body.h"
