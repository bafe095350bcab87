#define ULP_WEIGHT_TILES kWeightTilesAvx512
#define ULP_WEIGHT_ROWS 14
#include "ulp/kernels/linear/weight_tile_body.h"
