#define ULP_ROW_OPS kRowOpsPortable
#include "ulp/kernels/row_ops_body.h"
