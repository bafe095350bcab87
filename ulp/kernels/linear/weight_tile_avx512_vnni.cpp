#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/linear/weight_tile_body.h"

namespace ulp::kernels {
namespace {

/// vpdpbusd.
struct Dot {
  using Part = __m512i;
  static constexpr int kWords = 1, kRows = 4;
  static Part begin(__m512i sum) { return sum; }
  static Part add(Part part, __m512i codes, __m512i digits) {
    return _mm512_dpbusd_epi32(part, codes, digits);
  }
  static __m512i end(__m512i, Part part) { return part; }
};

}  // namespace

void digit_tile_avx512_vnni(const WeightTileArgs& t) {
  weight_rows<DigitGroups<Vec512, Dot>>(t);
}

}  // namespace ulp::kernels
