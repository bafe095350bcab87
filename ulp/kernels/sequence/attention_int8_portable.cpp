#define ULP_HEAD kHeadCodesPortable
#define ULP_VECTOR_BYTES 16
#define ULP_TILE_VECTORS 2
#include "ulp/kernels/sequence/attention_int8_body.h"
