#define ULP_STEP_ROW_OPS kStepRowOpsPortable
#include "ulp/kernels/training/step_rows_body.h"
