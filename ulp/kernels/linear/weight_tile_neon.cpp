#define ULP_WEIGHT_TILES kWeightTilesNeon
#define ULP_WEIGHT_ROWS 6
#include "ulp/kernels/linear/weight_tile_body.h"
