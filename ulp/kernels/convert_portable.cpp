#define ULP_CONVERT_OPS kConvertOpsPortable
#include "ulp/kernels/convert_body.h"
