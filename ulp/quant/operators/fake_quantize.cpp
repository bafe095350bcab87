// ulp::fake_quantize and its gradient, on the fused kernels.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ulp/quant/operators/fake_quant_support.h"
#include "ulp/quant/operators/ops.h"

namespace ulp::quant {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

FakeQuantized checked(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                      int64_t qmin, int64_t qmax, bool with_mask) {
  constexpr const char* kWhere = "quant.fake_quantize";
  check_floating(kWhere, x);
  check_codes(kWhere, qmin, qmax, kLowestCode, kHighestCode);
  return fake_quantize_forward(x, check_params(kWhere, x, scale, zero_point, axis), axis, qmin, qmax,
                               with_mask);
}

Tensor fake_quantize_kernel(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                            int64_t qmin, int64_t qmax) {
  return checked(x, scale, zero_point, axis, qmin, qmax, false).values;
}

struct FakeQuantizeFunction : public torch::autograd::Function<FakeQuantizeFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& scale,
                        const Tensor& zero_point, int64_t axis, int64_t qmin, int64_t qmax) {
    at::AutoDispatchBelowADInplaceOrView below;
    const FakeQuantized result = checked(x, scale, zero_point, axis, qmin, qmax, true);
    context->save_for_backward({result.inside});
    context->saved_data["strides"] = result.values.strides().vec();
    return result.values;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {fake_quantize_backward(grads[0], context->get_saved_variables()[0],
                                   context->saved_data["strides"].toIntVector()),
            {},
            {},
            {},
            {},
            {}};
  }
};

Tensor fake_quantize_autograd(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                              int64_t qmin, int64_t qmax) {
  if (at::GradMode::is_enabled() && x.requires_grad()) {
    return FakeQuantizeFunction::apply(x, scale, zero_point, axis, qmin, qmax);
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return fake_quantize(x, scale, zero_point, axis, qmin, qmax);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("fake_quantize(Tensor x, Tensor scale, Tensor zero_point, int axis, int qmin, int qmax) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("fake_quantize", fake_quantize_kernel);
}
TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("fake_quantize", fake_quantize_autograd);
}

Tensor fake_quantize(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                     int64_t qmin, int64_t qmax) {
  static const auto op = find_operator<decltype(fake_quantize_kernel)>("ulp::fake_quantize");
  return op.call(x, scale, zero_point, axis, qmin, qmax);
}

}  // namespace ulp::quant
