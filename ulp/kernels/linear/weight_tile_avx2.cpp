#include "ulp/kernels/isa/vec256.h"
// after the vector type
#include "ulp/kernels/linear/weight_tile_body.h"

namespace ulp::kernels {

const WeightTiles kWeightTilesAvx2 = weight_tiles<Vec256>();

}  // namespace ulp::kernels
