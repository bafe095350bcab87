#include "ulp/kernels/isa/vec256.h"
// after the vector type
#include "ulp/kernels/linear/weight_tile_body.h"

namespace ulp::kernels {
namespace {

/// vpmaddubsw: 16 bits hold eight sums of two products.
struct Dot {
  using Part = __m256i;
  static constexpr int kWords = 4, kRows = 2;
  static Part begin(__m256i) { return _mm256_setzero_si256(); }
  static Part add(Part part, __m256i codes, __m256i digits) {
    return _mm256_add_epi16(part, _mm256_maddubs_epi16(codes, digits));
  }
  static __m256i end(__m256i sum, Part part) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(part, _mm256_set1_epi16(1)));
  }
};

}  // namespace

const WeightTiles kWeightTilesAvx2 = weight_tiles<Vec256>();

void digit_tile_avx2(const WeightTileArgs& t) {
  weight_rows<DigitGroups<Vec256, Dot>>(t);
}

}  // namespace ulp::kernels
