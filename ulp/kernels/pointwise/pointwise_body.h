// The functions of the list on blocks, written so that the compiler vectorizes them. Included once by a file per
// instruction set, which names its table with ULP_POINTWISE_OPS; everything here has internal linkage.
#include "ulp/kernels/common/compiler.h"
#include "ulp/kernels/pointwise/math.h"
#include "ulp/kernels/pointwise/pointwise_ops.h"

namespace ulp::kernels {
namespace {

void apply(PointwiseOp op, const float* pa, const float* pb, const float* pc, float* y, int64_t n) {
  switch (op) {
// An operand that is the result is read at the same index only, so that no iteration waits for another.
#define ULP_CASE(name, operands, ...)                                    \
  case PointwiseOp::name: {                                              \
    [[maybe_unused]] const float* const second = operands > 1 ? pb : pa; \
    [[maybe_unused]] const float* const third = operands > 2 ? pc : pa;  \
    ULP_INDEPENDENT for (int64_t i = 0; i < n; ++i) {                    \
      [[maybe_unused]] const float a = pa[i];                            \
      [[maybe_unused]] const float b = second[i];                        \
      [[maybe_unused]] const float c = third[i];                         \
      y[i] = __VA_ARGS__;                                                \
    }                                                                    \
    break;                                                               \
  }
    ULP_POINTWISE(ULP_CASE)
#undef ULP_CASE
  }
}

}  // namespace

extern const PointwiseOps ULP_POINTWISE_OPS;
const PointwiseOps ULP_POINTWISE_OPS = {apply};

}  // namespace ulp::kernels
