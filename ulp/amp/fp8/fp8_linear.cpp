// ulp::fp8_linear and its gradient.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/types.h>

#include "ulp/amp/fp8/fp8_autocast.h"
#include "ulp/amp/fp8/fp8_call.h"
#include "ulp/amp/fp8/fp8_product.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using CallPtr = c10::intrusive_ptr<Fp8Call>;

struct Fp8LinearFunction : public torch::autograd::Function<Fp8LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const CallPtr& call) {
    const BelowAutocast below;
    const Tensor rows = x.reshape({-1, x.size(-1)});
    const Fp8Operand input = call->quantize_matrix(rows, Fp8Role::input, call->needs_weight);
    const QuantizedWeight kept = call->quantize_weight(weight, /*matrix=*/true);
    Tensor y = fp8_product(input.by_columns, kept.forward, /*fast_accumulation=*/true,
                           {call->name, Fp8ProductRole::forward});
    if (bias) y.add_(*bias);
    save_operands(*context, call, call->needs_weight ? input.by_rows : Fp8Tensor{},
                  call->needs_input ? kept.backward : Fp8Tensor{});
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    context->saved_data["sizes"] = x.sizes().vec();
    return y.view(sizes).to(call->result);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const BelowAutocast below;
    const CallPtr call = call_of(*context);
    const SavedOperands saved = saved_operands(*context, *call);
    const Tensor rows = grads[0].reshape({-1, grads[0].size(-1)});
    Tensor of_x, of_weight, of_bias;
    if (call->trains()) {
      const Fp8Operand gradient = call->quantize_matrix(rows, Fp8Role::gradient, call->needs_weight);
      if (call->needs_input) {
        of_x = fp8_product(gradient.by_columns, saved.weight, /*fast_accumulation=*/false,
                           {call->name, Fp8ProductRole::input_gradient})
                   .view(context->saved_data["sizes"].toIntVector())
                   .to(call->input_dtype);
      }
      if (call->needs_weight) {
        of_weight = fp8_product(gradient.by_rows, saved.x, /*fast_accumulation=*/false,
                                {call->name, Fp8ProductRole::weight_gradient})
                        .to(call->weight_dtype);
      }
    }
    if (call->needs_bias) of_bias = rows.sum(0, /*keepdim=*/false, at::kFloat).to(call->bias_dtype);
    return {of_x, of_weight, of_bias, {}};
  }
};

Tensor fp8_linear_op(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                     const std::optional<Tensor>& scale, const std::optional<Tensor>& amax_history,
                     c10::string_view recipe, c10::string_view name) {
  // Of no samples there is nothing to round.
  if (!Fp8Setting::current().enabled || x.numel() == 0) return at::linear(x, weight, bias);
  const Tensor given_bias = bias.value_or(Tensor());
  const CallPtr call = fp8_call(x, weight, given_bias, scale, amax_history, recipe, name);
  if (weight.dim() != 2 || x.dim() < 1 || x.size(-1) != weight.size(1))
    fail("amp.fp8_linear", "expected x [..., in] and a weight [out, in], got ", x.sizes(), " and ",
         weight.sizes());
  return Fp8LinearFunction::apply(x, weight, given(given_bias), call);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "fp8_linear(Tensor x, Tensor weight, Tensor? bias, Tensor? scale, Tensor(a!)? amax_history, str "
      "recipe, "
      "str name) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeImplicitAutograd, m) {
  m.impl("fp8_linear", fp8_linear_op);
}

Tensor fp8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Fp8LayerRecipe& recipe,
                  const Fp8State& state, const std::string& name) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(kFp8LinearOp, "").typed<decltype(fp8_linear_op)>();
  return op.call(x, weight, given(bias), given(state.scale), given(state.amax_history), recipe.text(), name);
}

}  // namespace ulp::amp
