#define ULP_WEIGHT_TILES kWeightTilesAvx2
#define ULP_WEIGHT_ROWS 4
#include "ulp/kernels/linear/weight_tile_body.h"
