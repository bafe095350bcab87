// 8-bit tiles on USMMLA: bytes without a sign times bytes with one.
#include "ulp/kernels/isa/vec_neon.h"
// after the vector type
#include "ulp/kernels/conv/matrix_body.h"

namespace ulp::kernels {
namespace {

struct MatrixU8 : IntSums<VecNeon> {
  static int32x4_t first(int32x4_t x, int32x4_t y) { return lower_halves(x, y); }
  static int32x4_t second(int32x4_t x, int32x4_t y) { return upper_halves(x, y); }
  static int32x4_t product(int32x4_t sums, int32x4_t a, int32x4_t b) {
    return vusmmlaq_s32(sums, vreinterpretq_u8_s32(a), vreinterpretq_s8_s32(b));
  }
};

}  // namespace

const TileKernels kTilesU8NeonI8mm = {"u8_neon_i8mm", DataType::u8,           DataType::u8, 4, 8,
                                      {12, 6, 6},     ULP_MATRICES(MatrixU8), nullptr,      8};

}  // namespace ulp::kernels
