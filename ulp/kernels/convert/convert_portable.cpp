#define ULP_CONVERT_OPS kConvertOpsPortable
#include "ulp/kernels/convert/convert_body.h"
