#include "ulp/kernels/isa/vec256.h"
// after the vector type
#include "ulp/kernels/linear/weight_tile_body.h"

namespace ulp::kernels {

const WeightTiles kWeightTilesAvx2 = weight_tiles<Vec256>();

void digit_tile_avx2(const WeightTileArgs& t) {
  weight_rows<DigitGroups<Vec256, DotPairs<Vec256, 2>>>(t);
}

}  // namespace ulp::kernels
