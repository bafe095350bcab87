// bf16 tiles whose products are summed in f32: BFMMLA where the inputs of a pixel are fours, BFDOT where they are pairs. Both
// round sums toward odd numbers and take subnormal ones for zero.
#include "ulp/kernels/isa/vec_neon.h"
// after the vector type
#include "ulp/kernels/conv/matrix_body.h"

namespace ulp::kernels {
namespace {

/// Rounds to bf16 in one instruction.
struct VecNeonBf16 : VecNeon {
  static void store_bf16(void* data, int64_t i, int64_t n, F v) {
    store_words(data, i, n, vreinterpret_u16_bf16(vcvt_bf16_f32(v)));
  }
};

struct LaneBf16 : FloatSums<VecNeonBf16> {
  static constexpr bool kByLane = true;
  static int32x4_t input(const uint8_t* p) { return VecNeon::loadi(p); }
  static bfloat16x8_t weights(int32x4_t b) { return vreinterpretq_bf16_s32(b); }
  template <int kUnit>
  static float32x4_t dot_lane(float32x4_t acc, int32x4_t a, bfloat16x8_t b) {
    return vbfdotq_laneq_f32(acc, b, vreinterpretq_bf16_s32(a), kUnit);
  }
  static float32x4_t dot(float32x4_t acc, int32x4_t a, int32x4_t b) {
    return vbfdotq_f32(acc, weights(b), vreinterpretq_bf16_s32(a));
  }
};

struct MatrixBf16 : FloatSums<VecNeonBf16> {
  static float32x4_t first(float32x4_t x, float32x4_t y) {
    return vreinterpretq_f32_s32(lower_halves(vreinterpretq_s32_f32(x), vreinterpretq_s32_f32(y)));
  }
  static float32x4_t second(float32x4_t x, float32x4_t y) {
    return vreinterpretq_f32_s32(upper_halves(vreinterpretq_s32_f32(x), vreinterpretq_s32_f32(y)));
  }
  static float32x4_t product(float32x4_t sums, int32x4_t a, int32x4_t b) {
    return vbfmmlaq_f32(sums, vreinterpretq_bf16_s32(a), vreinterpretq_bf16_s32(b));
  }
};

}  // namespace

const TileKernels kTilesBf16NeonBf16 = {
    "bf16_neon_bf16_dot",
    DataType::bf16,
    DataType::bf16,
    4,
    2,
    {12, 6, 6},
    {{ULP_TILES_12(LaneBf16, 1)}, {ULP_TILES_6(LaneBf16, 2)}, {ULP_TILES_6(LaneBf16, 4)}},
    nullptr};
const TileKernels kTilesBf16NeonMatrix = {"bf16_neon_bf16", DataType::bf16,           DataType::bf16, 4, 4,
                                          {12, 6, 6},       ULP_MATRICES(MatrixBf16), nullptr,        8};

}  // namespace ulp::kernels
