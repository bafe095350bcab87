#include "ulp/kernels/isa/random_avx512.h"
#define ULP_OPTIMIZER_OPS kOptimizerOpsAvx512
#define ULP_RANDOM_BITS_OF_GROUP random_bits_of_group_avx512
#define ULP_VECTOR_BYTES 64
#include "ulp/kernels/training/optimizer_body.h"
