// The dispatcher operator of int8 linear layers, registered under the namespace `ulp`:
//
//   ulp::int8_linear(Tensor x, Tensor weight, Tensor? bias, str method, bool output, bool grad_input,
//                    bool grad_weight, bool stochastic) -> Tensor
//
// Three products: y = x W^T + bias, dx = g W, dW = g^T x. One in int8 has both operands as codes
// (kernels/training/int8_codes.h), sums them exactly in int32, multiplies by the scales and adds the bias in
// fp32. Scales lie along what is summed:
//
//   | method     | y                    | dx                      | dW                         |
//   |------------|----------------------|-------------------------|----------------------------|
//   | switchback | rows of x, one for W | rows of g, one for W    | not in int8                |
//   | rowwise    | rows of x, rows of W | rows of g, columns of W | columns of g, columns of x |
//   | jetfire    | blocks of 32 x 32    | the same codes          | the same codes             |
//
// A product that is not in int8 is computed in the dtype of the result. That is autocast's dtype where
// LibTorch's autocast is on for the device, else that of x. What is kept for the backward pass of an operand
// of an int8 product is its codes, a byte a value, but for the weight of rowwise. The bias's gradient is the
// sum of g, in fp32. Gradients go straight through the rounding.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/amp/int8/int8_recipe.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// Name of the operator in graphs.
inline constexpr const char* kInt8LinearOp = "ulp::int8_linear";

/// x [..., in], weight [out, in], bias [out] or undefined. Throws ulp::Error for other shapes, for types that
/// are not floating-point, and for a recipe that is none. The gradients have no gradients of their own.
ULP_API at::Tensor int8_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                               const Int8LayerRecipe& recipe = {});

}  // namespace ulp::amp
