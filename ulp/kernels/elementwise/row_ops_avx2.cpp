#define ULP_ROW_OPS kRowOpsAvx2
#include "ulp/kernels/elementwise/row_ops_body.h"
