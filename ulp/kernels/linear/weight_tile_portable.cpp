#define ULP_WEIGHT_TILES kWeightTilesPortable
#define ULP_WEIGHT_ROWS 2
#include "ulp/kernels/linear/weight_tile_body.h"
