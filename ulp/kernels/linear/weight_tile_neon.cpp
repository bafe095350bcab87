#include "ulp/kernels/isa/vec_neon.h"
// after the vector type
#include "ulp/kernels/linear/weight_tile_body.h"

namespace ulp::kernels {

const WeightTiles kWeightTilesNeon = weight_tiles<VecNeon>();

}  // namespace ulp::kernels
