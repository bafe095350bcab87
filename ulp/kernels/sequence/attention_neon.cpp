#define ULP_HEAD kHeadNeon
#define ULP_VECTOR_BYTES 16
#define ULP_TILE_VECTORS 4
#include "ulp/kernels/sequence/attention_body.h"
