#define ULP_ATTENTION_ROW_OPS kAttentionRowOpsPortable
#include "ulp/kernels/training/attention_rows_body.h"
