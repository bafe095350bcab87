// ulp::binarize and the gradients that stand for its own.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/types.h>

#include "ulp/quant/operators/binary_ops.h"
#include "ulp/quant/static/op_support.h"

namespace ulp::quant {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kBinarizeWhere = "quant.binarize";

SignGradient gradient_of(c10::string_view word) {
  return require_word<SignGradient>(kBinarizeWhere, "a gradient of", word);
}

Tensor binarize_kernel(const Tensor& x, c10::string_view gradient) {
  check_floating(kBinarizeWhere, x);
  gradient_of(gradient);
  return x.ge(0).to(x.scalar_type()).mul_(2).sub_(1);
}

/// An infinite gradient stays out where the factor is 0.
Tensor backward_of(SignGradient kind, const Tensor& x, const Tensor& gradient) {
  if (kind == SignGradient::identity) return gradient;
  const Tensor size = x.abs();
  const Tensor passed = kind == SignGradient::clipped ? gradient : gradient * (2 - 2 * size);
  return at::where(size.le(1), passed, at::zeros({}, gradient.options()));
}

struct BinarizeFunction : public torch::autograd::Function<BinarizeFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const std::string& gradient) {
    at::AutoDispatchBelowADInplaceOrView below;
    const SignGradient kind = gradient_of(gradient);
    context->save_for_backward({kind == SignGradient::identity ? Tensor() : x});
    context->saved_data["gradient"] = static_cast<int64_t>(kind);
    return binarize_kernel(x, gradient);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto kind = static_cast<SignGradient>(context->saved_data["gradient"].toInt());
    return {backward_of(kind, context->get_saved_variables()[0], grads[0]), {}};
  }
};

Tensor call(const Tensor& x, c10::string_view gradient) {
  static const auto op = find_operator<decltype(binarize_kernel)>("ulp::binarize");
  return op.call(x, gradient);
}

Tensor binarize_autograd(const Tensor& x, c10::string_view gradient) {
  if (at::GradMode::is_enabled() && x.requires_grad())
    return BinarizeFunction::apply(x, std::string(gradient));
  at::AutoDispatchBelowADInplaceOrView below;
  return call(x, gradient);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("binarize(Tensor x, str gradient) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("binarize", binarize_kernel);
}
TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("binarize", binarize_autograd);
}

Tensor binarize(const Tensor& x, SignGradient gradient) {
  return call(x, enum_name(gradient));
}

}  // namespace ulp::quant
