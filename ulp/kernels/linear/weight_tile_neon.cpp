#include "ulp/kernels/isa/vec_neon.h"
// after the vector type
#include "ulp/kernels/linear/weight_tile_body.h"

namespace ulp::kernels {
namespace {

/// Products of bytes in 16 bits, which hold sums of sixteen.
struct Dot {
  struct Part {
    int16x8_t low, high;  ///< of two lanes each
  };
  static constexpr int kWords = 4, kRows = 2;
  static Part begin(int32x4_t) { return {vdupq_n_s16(0), vdupq_n_s16(0)}; }
  static Part add(Part part, int32x4_t codes, int32x4_t digits) {
    const int8x16_t a = vreinterpretq_s8_s32(codes), b = vreinterpretq_s8_s32(digits);
    return {vmlal_s8(part.low, vget_low_s8(a), vget_low_s8(b)), vmlal_high_s8(part.high, a, b)};
  }
  static int32x4_t end(int32x4_t sum, Part part) { return vpadalq_s16(sum, vpaddq_s16(part.low, part.high)); }
};

}  // namespace

const WeightTiles kWeightTilesNeon = weight_tiles<VecNeon>();

void digit_tile_neon(const WeightTileArgs& t) {
  weight_rows<DigitGroups<VecNeon, Dot>>(t);
}

}  // namespace ulp::kernels
