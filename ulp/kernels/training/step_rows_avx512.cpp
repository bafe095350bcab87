#include "ulp/kernels/isa/random_avx512.h"
#define ULP_STEP_ROW_OPS kStepRowOpsAvx512
#define ULP_RANDOM_BITS_OF_GROUP random_bits_of_group_avx512
#include "ulp/kernels/training/step_rows_body.h"
