#define ULP_ROW_OPS kRowOpsPortable
#include "ulp/kernels/elementwise/row_ops_body.h"
