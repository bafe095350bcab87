#define ULP_STEP_ROW_OPS kStepRowOpsAvx2
#include "ulp/kernels/training/step_rows_body.h"
