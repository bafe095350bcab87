#include "ulp/quant/operators/straight_through.h"

#include <torch/csrc/autograd/custom_function.h>

namespace ulp::quant {
namespace {

struct StraightThrough : public torch::autograd::Function<StraightThrough> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor&, const at::Tensor& value) {
    return value.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& grads) {
    return {grads[0], {}};
  }
};

}  // namespace

at::Tensor straight_through(const at::Tensor& source, const at::Tensor& value) {
  if (!at::GradMode::is_enabled() || !source.requires_grad()) return value.detach();
  return StraightThrough::apply(source, value.detach());
}

}  // namespace ulp::quant
