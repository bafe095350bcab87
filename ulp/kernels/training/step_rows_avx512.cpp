#define ULP_STEP_ROW_OPS kStepRowOpsAvx512
#include "ulp/kernels/training/step_rows_body.h"
