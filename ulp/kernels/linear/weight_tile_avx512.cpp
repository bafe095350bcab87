#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/linear/weight_tile_body.h"

namespace ulp::kernels {
namespace {

/// vpmaddubsw: 16 bits hold eight sums of two products.
struct Dot {
  using Part = __m512i;
  static constexpr int kWords = 4, kRows = 4;
  static Part begin(__m512i) { return _mm512_setzero_si512(); }
  static Part add(Part part, __m512i codes, __m512i digits) {
    return _mm512_add_epi16(part, _mm512_maddubs_epi16(codes, digits));
  }
  static __m512i end(__m512i sum, Part part) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(part, _mm512_set1_epi16(1)));
  }
};

}  // namespace

const WeightTiles kWeightTilesAvx512 = weight_tiles<Vec512>();

void digit_tile_avx512(const WeightTileArgs& t) {
  weight_rows<DigitGroups<Vec512, Dot>>(t);
}

}  // namespace ulp::kernels
