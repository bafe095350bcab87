#include "ulp/kernels/isa/random_avx512.h"
#define ULP_ATTENTION_ROW_OPS kAttentionRowOpsAvx512
#define ULP_RANDOM_BITS_OF_GROUP random_bits_of_group_avx512
#include "ulp/kernels/training/attention_rows_body.h"
