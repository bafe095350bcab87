// The dispatcher operator of linear layers whose weight does not train and is kept in fewer bits, registered
// under the namespace `ulp`:
//
//   ulp::frozen_linear(Tensor x, Tensor[] weight, Tensor? bias, str format, int rows, int columns) -> Tensor
//
// y = x W^T + bias, dx = g W, with W = dequantize(weight) in the dtype of the result (frozen_weight.h). That
// is autocast's dtype where LibTorch's autocast is on for the device, else that of x. W is made anew in each
// pass and freed behind the product: neither pass keeps it, nor x. There are no gradients of weight and bias.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/base/export.h"
#include "ulp/lora/frozen_weight.h"

namespace ulp::lora {

/// Name of the operator in graphs.
inline constexpr const char* kFrozenLinearOp = "ulp::frozen_linear";

/// x [..., columns], bias [rows] or undefined. Throws ulp::Error for other shapes, for x that is not
/// floating-point, for a bias that trains, and as FrozenWeight::check(). The gradient has no gradient of its
/// own.
ULP_API at::Tensor frozen_linear(const at::Tensor& x, const FrozenWeight& weight,
                                 const at::Tensor& bias = {});

}  // namespace ulp::lora
