#define ULP_HEAD kHeadAvx512
#define ULP_VECTOR_BYTES 64
#define ULP_TILE_VECTORS 4
#include "ulp/kernels/sequence/attention_body.h"
