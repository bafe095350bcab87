#define ULP_ROW_OPS kRowOpsAvx2
#include "ulp/kernels/row_ops_body.h"
