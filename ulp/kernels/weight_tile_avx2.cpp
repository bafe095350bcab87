#define ULP_WEIGHT_TILES kWeightTilesAvx2
#define ULP_WEIGHT_ROWS 4
#include "ulp/kernels/weight_tile_body.h"
