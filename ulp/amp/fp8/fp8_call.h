// One call of an fp8 layer as its forward and backward see it; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string>

#include "ulp/amp/fp8/fp8_ops.h"
#include "ulp/amp/fp8/fp8_tensor.h"
#include "ulp/amp/fp8/weight_cache.h"

namespace ulp::amp {

/// A matrix (rows are samples, or outputs of a weight) quantized along its columns and along its rows.
struct Fp8Operand {
  Fp8Tensor by_columns;
  Fp8Tensor by_rows;  ///< of the transpose
};

struct Fp8Call final : public torch::CustomClassHolder {
  std::string name;
  std::string recipe_text;
  Fp8LayerRecipe recipe;
  Fp8State state;
  ConvolutionShape shape;  ///< of convolutions
  at::ScalarType result = at::kFloat, input_dtype = at::kFloat, weight_dtype = at::kFloat,
                 bias_dtype = at::kFloat;
  bool needs_input = false, needs_weight = false, needs_bias = false;  ///< gradients

  bool trains() const { return needs_input || needs_weight; }
  /// True where one scale for the whole tensor serves all products.
  bool whole() const {
    return recipe.scaling == Fp8Scaling::delayed || recipe.scaling == Fp8Scaling::current;
  }

  /// The tensor with one scale; notes its amax.
  Fp8Tensor quantize(const at::Tensor& x, Fp8Role role) const;
  /// The matrix, along its columns, and with `both` along its rows.
  Fp8Operand quantize_matrix(const at::Tensor& x, Fp8Role role, bool both) const;
  /// The same of a weight, from the cache where it is there. `matrix`: the weight is one; otherwise it has one scale.
  QuantizedWeight quantize_weight(const at::Tensor& weight, bool matrix) const;
};

/// The products are what they are, whatever autocast would make of them.
struct BelowAutocast {
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

/// As the dispatcher takes what may be undefined.
inline std::optional<at::Tensor> given(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// What an op was called with, checked. Throws ulp::Error.
c10::intrusive_ptr<Fp8Call> fp8_call(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                     const std::optional<at::Tensor>& scale,
                                     const std::optional<at::Tensor>& amax_history, c10::string_view recipe,
                                     c10::string_view name);

/// The call that a backward pass belongs to. Throws ulp::Error where that is asked for gradients of its own.
c10::intrusive_ptr<Fp8Call> call_of(torch::autograd::AutogradContext& context);

/// Saves the codes and scales of x and W for the backward pass.
void save_operands(torch::autograd::AutogradContext& context, const c10::intrusive_ptr<Fp8Call>& call,
                   const Fp8Tensor& x, const Fp8Tensor& weight);

/// Quantized as they were saved: formats and blocks are the recipe's.
struct SavedOperands {
  Fp8Tensor x, weight;
};
SavedOperands saved_operands(const torch::autograd::AutogradContext& context, const Fp8Call& call);

}  // namespace ulp::amp
