#define ULP_ATTENTION_ROW_OPS kAttentionRowOpsAvx2
#include "ulp/kernels/training/attention_rows_body.h"
