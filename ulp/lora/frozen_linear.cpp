#include "ulp/lora/frozen_linear.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/types.h>

#include "ulp/base/error.h"

namespace ulp::lora {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kFrozenLinearWhere = "lora.frozen_linear";

/// A call as its backward sees it.
struct FrozenCall final : public torch::CustomClassHolder {
  FrozenWeight weight;
  at::ScalarType result = at::kFloat, input_dtype = at::kFloat;
  std::vector<int64_t> sizes;  ///< of x
};

at::ScalarType result_type(const Tensor& x) {
  const auto device = x.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                   : x.scalar_type();
}

c10::intrusive_ptr<FrozenCall> checked_call(const Tensor& x, at::TensorList weight, const Tensor& bias,
                                            c10::string_view format, int64_t rows, int64_t columns) {
  auto call = c10::make_intrusive<FrozenCall>();
  call->weight = {.format = require_word<LoraBase>(kFrozenLinearWhere, "the format",
                                                   std::string_view(format.data(), format.size())),
                  .parts = weight.vec(),
                  .rows = rows,
                  .columns = columns};
  call->weight.check();
  if (!x.is_floating_point() || x.dim() < 1 || x.size(-1) != columns)
    fail(kFrozenLinearWhere, "expected floating-point x [..., ", columns, "], got ", x.scalar_type(), ' ',
         x.sizes());
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != rows || bias.requires_grad()))
    fail(kFrozenLinearWhere, "expected a bias of ", rows, " numbers that does not train, got ", bias.sizes(),
         bias.requires_grad() ? ", which requires a gradient" : "");
  call->result = result_type(x);
  call->input_dtype = x.scalar_type();
  call->sizes = x.sizes().vec();
  return call;
}

Tensor product(const FrozenCall& call, const Tensor& x, const Tensor& bias) {
  const Tensor weight = dequantize(call.weight, call.result);
  return at::linear(x.to(call.result), weight,
                    bias.defined() ? std::optional(bias.to(call.result)) : std::nullopt);
}

struct FrozenLinearFunction : public torch::autograd::Function<FrozenLinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const std::optional<Tensor>& bias,
                        const c10::intrusive_ptr<FrozenCall>& call) {
    at::AutoDispatchBelowADInplaceOrView below;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return product(*call, x, bias.value_or(Tensor()));
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (at::GradMode::is_enabled())
      fail(kFrozenLinearWhere,
           "expected a backward pass without create_graph; gradients of frozen layers have none");
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto call = c10::static_intrusive_pointer_cast<FrozenCall>(context->saved_data["call"].toCapsule());
    if (!grads[0].defined()) return {Tensor(), Tensor(), Tensor()};
    const Tensor g = grads[0].reshape({-1, call->weight.rows});
    const Tensor dx = at::mm(g, dequantize(call->weight, g.scalar_type()));
    return {dx.view(call->sizes).to(call->input_dtype), Tensor(), Tensor()};
  }
};

Tensor frozen_linear_kernel(const Tensor& x, at::TensorList weight, const std::optional<Tensor>& bias,
                            c10::string_view format, int64_t rows, int64_t columns) {
  const Tensor b = bias.value_or(Tensor());
  const auto call = checked_call(x, weight, b, format, rows, columns);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return product(*call, x, b);
}

Tensor frozen_linear_autograd(const Tensor& x, at::TensorList weight, const std::optional<Tensor>& bias,
                              c10::string_view format, int64_t rows, int64_t columns) {
  const Tensor b = bias.value_or(Tensor());
  const auto call = checked_call(x, weight, b, format, rows, columns);
  if (at::GradMode::is_enabled() && x.requires_grad()) return FrozenLinearFunction::apply(x, bias, call);
  at::AutoDispatchBelowADInplaceOrView below;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return product(*call, x, b);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "frozen_linear(Tensor x, Tensor[] weight, Tensor? bias, str format, int rows, int columns) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("frozen_linear", frozen_linear_kernel);
}
TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("frozen_linear", frozen_linear_autograd);
}

Tensor frozen_linear(const Tensor& x, const FrozenWeight& weight, const Tensor& bias) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(kFrozenLinearOp, "")
                             .typed<decltype(frozen_linear_kernel)>();
  return op.call(x, weight.parts, bias.defined() ? std::optional(bias) : std::nullopt,
                 enum_name(weight.format), weight.rows, weight.columns);
}

}  // namespace ulp::lora
