// The table of functions on blocks that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/pointwise/pointwise_list.h"

namespace ulp::kernels {

struct PointwiseOps {
  /// y[i] = op(a[i], b[i], c[i]); operands that the function does not take are not read. y may be an operand.
  void (*apply)(PointwiseOp op, const float* a, const float* b, const float* c, float* y, int64_t n);
};

extern const PointwiseOps kPointwiseOpsPortable, kPointwiseOpsAvx2, kPointwiseOpsAvx512;

}  // namespace ulp::kernels
