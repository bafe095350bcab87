// The dispatcher operators of fp8 layers, registered under the namespace `ulp`:
//
//   ulp::fp8_linear(Tensor x, Tensor weight, Tensor? bias, Tensor? scale, Tensor(a!)? amax_history, str recipe,
//                   str name) -> Tensor
//   ulp::fp8_convolution(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation,
//                        int groups, Tensor? scale, Tensor(a!)? amax_history, str recipe, str name) -> Tensor
//
// Each makes three products of quantized operands, with codes multiplied and summed in fp32 and the scales applied to
// the sums (those of blocks to the numbers before): y = q(x) q(W)^T + bias, dx = q(dy) q(W), dW = q(dy)^T q(x). The bias
// and its gradient stay as they are. What is kept for the backward pass of x and W is their codes, a byte a value.
//
//   - delayed and current: one quantization of each tensor serves all its products.
//   - rowwise, block, mxfp8, nvfp4: scales lie along what a product sums over, so x, dy and W are quantized once along
//     their columns and once along their rows, both from the original (square blocks of W: once). nvfp4 mixes x and dy
//     by hadamard_16() before dW, and rounds dy at random, by the default CPU generator.
//   - convolutions of these recipes are products over patches (im2col), with groups 1 alone.
//
// The result is in autocast's dtype where LibTorch's autocast is on for the device, else in that of x. Gradients are
// those of the layer with its operands replaced by their rounded values, straight through the rounding.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// Names of the operators in graphs.
inline constexpr const char* kFp8LinearOp = "ulp::fp8_linear";
inline constexpr const char* kFp8ConvolutionOp = "ulp::fp8_convolution";

/// How a convolution of 1 or 2 dimensions moves.
struct ConvolutionShape {
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
};

/// x [..., in], weight [out, in], bias [out] or undefined. `state` for delayed scaling (Fp8State::make). `name` is what
/// reports call the layer. Throws ulp::Error for state that does not fit the recipe.
ULP_API at::Tensor fp8_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const Fp8LayerRecipe& recipe, const Fp8State& state = {},
                              const std::string& name = {});

/// x [n, in, ...], weight [out, in / groups, ...], bias [out] or undefined.
ULP_API at::Tensor fp8_convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                   const ConvolutionShape& shape, const Fp8LayerRecipe& recipe,
                                   const Fp8State& state = {}, const std::string& name = {});

/// Why a convolution has no form in the recipe; empty where it has one.
ULP_API std::string fp8_convolution_obstacle(const Fp8LayerRecipe& recipe, int64_t groups);

}  // namespace ulp::amp
