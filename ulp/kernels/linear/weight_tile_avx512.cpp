#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/linear/weight_tile_body.h"

namespace ulp::kernels {

const WeightTiles kWeightTilesAvx512 = weight_tiles<Vec512>();

void digit_tile_avx512(const WeightTileArgs& t) {
  weight_rows<DigitGroups<Vec512, DotPairs<Vec512, 4>>>(t);
}

}  // namespace ulp::kernels
