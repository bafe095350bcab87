#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/linear/weight_tile_body.h"

namespace ulp::kernels {

const WeightTiles kWeightTilesAvx512 = weight_tiles<Vec512>();

}  // namespace ulp::kernels
