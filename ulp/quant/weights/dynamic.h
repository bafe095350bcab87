// Dynamic quantization: int8 weights, activations quantized on the fly. No data is needed.
//
//   auto quantized = ulp::quant::quantize_dynamic(captured);
//
// The graph holds one explicit operator for each quantized layer:
//
//   ulp::linear_dynamic(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias, bool per_tensor)
//     -> Tensor
//   ulp::lstm_dynamic(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers,
//                     bool bidirectional, bool batch_first, bool per_tensor) -> (Tensor, Tensor, Tensor)
//   ulp::gru_dynamic(Tensor input, Tensor hx, ...the same) -> (Tensor, Tensor)
//
// weight s8 [O, K] symmetric with weight_scale f32[O]. Each row of x (a token; with per_tensor all of x) is
// quantized to u8 by its own bounds with zero, as kernels::dynamic_affine does (linear/dynamic_linear.h):
//   y[r, c] = float(sum_k (q[r, k] - z[r]) weight[c, k]) * (s[r] * weight_scale[c]) + bias[c]
// with the sum exact in int32 and each float operation rounded to float32. Engines compute the same bits from
// the same x.
//
// lstm and gru take aten::lstm's and aten::gru's arguments, with the parameters of each layer and direction
// as W_ih s8 [gates * hidden, features], its scales, W_hh, its scales[, b_ih, b_hh]. Both products of a step
// are linear_dynamic's (with per_tensor: of all steps of x at once, of h of the whole batch at each step);
// gates are computed in f32 as kernels/sequence/recurrent_cell.h says. Engines compute the same bits, too.
//
// Against PyTorch's quantized::linear_dynamic: the same formula with reduce_range off (no kernel here
// saturates, on any instruction set), but rows have scales of their own unless per_tensor is set, and scales
// below 6.1e-5 are not raised to it. Weights are restricted to [-127, 127] per output channel; PyTorch's
// default observer takes one scale for the whole matrix.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::quant {

/// The recipe of dynamic quantization.
struct ULP_API DynamicRecipe {
  static constexpr const char* kType = "ulp.quant.DynamicRecipe";

  bool per_tensor = false;  ///< one scale for all rows of an activation instead of one a row
  std::vector<std::string> ops = {"linear", "lstm", "gru"};  ///< layers that are quantized: some of these
  /// Module paths left in float; '*' matches any run of characters.
  std::vector<std::string> skip_modules = {};

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// {"type": "ulp.quant.DynamicRecipe", "version": 1, ...}; reading is as Recipe::from_json().
  std::string to_json() const;
  static DynamicRecipe from_json(const std::string& text);
  bool operator==(const DynamicRecipe&) const = default;
};
/// The name of version 0.1.
using DynamicOptions = DynamicRecipe;

struct Recipe;
/// Converts a static recipe that says nothing but skip_modules. Throws ulp::Error for other fields.
ULP_API DynamicRecipe dynamic_recipe(const Recipe& recipe);

/// A copy of a captured model, in eval mode, whose linear, LSTM and GRU layers with stored weights quantize
/// their inputs (and states) as they run; the captured one stays as it is. Throws ulp::Error for a bad recipe,
/// a skip pattern that matches no module, weights that are not finite, and a model without such layers.
/// `report` receives what was quantized, and what not and why.
ULP_API std::shared_ptr<graph::GraphModule> quantize_dynamic(
    const std::shared_ptr<graph::GraphModule>& captured, const DynamicRecipe& recipe = {},
    graph::PassReport* report = nullptr);

/// The operator by itself. Throws ulp::Error for shapes or types other than above. Not differentiable.
ULP_API at::Tensor linear_dynamic(const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& weight_scale, const std::optional<at::Tensor>& bias,
                                  bool per_tensor);

}  // namespace ulp::quant
