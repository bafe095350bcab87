// The two passes of fake quantization on tensors, below autograd; shared by the operators with fixed and with
// learned parameters. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/quant/static/op_support.h"

namespace ulp::quant {

/// Bounds of qmin and qmax: up to 16 bits, signed or unsigned.
constexpr int64_t kLowestCode = -32768, kHighestCode = 65535;

struct FakeQuantized {
  at::Tensor values;  ///< dtype of x
  /// Where the gradient passes, in the order of `values` in memory: on the CPU packed into words of 64 bits
  /// (kernels/training/fake_quant.h), elsewhere bools. Undefined unless asked for.
  at::Tensor inside;
};
FakeQuantized fake_quantize_forward(const at::Tensor& x, const Params& params, int64_t axis, int64_t qmin,
                                    int64_t qmax, bool with_mask);

/// The gradient where the mask is set, 0 elsewhere even if the gradient is not finite there. `strides`: of
/// the values that the mask belongs to.
at::Tensor fake_quantize_backward(const at::Tensor& gradient, const at::Tensor& inside,
                                  at::IntArrayRef strides);

}  // namespace ulp::quant
