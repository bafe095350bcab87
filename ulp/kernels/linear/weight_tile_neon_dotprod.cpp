#include "ulp/kernels/isa/vec_neon.h"
// after the vector type
#include "ulp/kernels/linear/weight_tile_body.h"

namespace ulp::kernels {
namespace {

/// SDOT: codes are below 128, so that they have no sign there, either.
struct Dot {
  using Part = int32x4_t;
  static constexpr int kWords = 1, kRows = 4;
  static Part begin(int32x4_t sum) { return sum; }
  static Part add(Part part, int32x4_t codes, int32x4_t digits) {
    return vdotq_s32(part, vreinterpretq_s8_s32(codes), vreinterpretq_s8_s32(digits));
  }
  static int32x4_t end(int32x4_t, Part part) { return part; }
};

}  // namespace

void digit_tile_neon_dotprod(const WeightTileArgs& t) {
  weight_rows<DigitGroups<VecNeon, Dot>>(t);
}

}  // namespace ulp::kernels
