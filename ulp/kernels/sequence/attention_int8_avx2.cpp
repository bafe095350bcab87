#define ULP_HEAD kHeadCodesAvx2
#define ULP_VECTOR_BYTES 32
#define ULP_TILE_VECTORS 2
#include "ulp/kernels/sequence/attention_int8_body.h"
