#define ULP_ROW_OPS kRowOpsAvx512
#include "ulp/kernels/elementwise/row_ops_body.h"
