// The dispatcher operator of masked parameters, registered under the namespace `ulp`:
//
//   ulp::apply_mask(Tensor weight, Tensor mask, bool dense_gradient=False) -> Tensor
//
// mask: uint8 bits (bit_mask.h) on the CPU. Kept elements of the result have the bits of the weight's,
// whatever they are, and all others are +0; dtype and memory layout are the weight's. Gradient to the weight:
// that of the result where it is kept and +0 elsewhere (also where it is not finite), or, with
// dense_gradient, all of it: what movement scores need. The gradient is differentiable again. Autocast leaves
// the operator alone: a layer casts its result as it would the weight.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/base/export.h"

namespace ulp::prune {

/// Throws ulp::Error for bits that are no mask of the weight.
ULP_API at::Tensor apply_mask(const at::Tensor& weight, const at::Tensor& mask, bool dense_gradient = false);

}  // namespace ulp::prune
