#define ULP_HEAD kHeadCodesAvx512Vnni
#define ULP_VECTOR_BYTES 64
#define ULP_TILE_VECTORS 4
#include "ulp/kernels/sequence/attention_int8_body.h"
