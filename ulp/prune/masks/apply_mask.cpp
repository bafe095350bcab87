#include "ulp/prune/masks/apply_mask.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ulp/libtorch/torch_parallel.h"
#include "ulp/prune/masks/bit_mask.h"

namespace ulp::prune {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 1 << 12;  // bytes of a mask that are worth a thread

/// Elements as the unsigned integers of their bits.
template <typename T>
void keep_elements(const Tensor& weight, const uint8_t* bits, Tensor& result) {
  const auto* in = static_cast<const T*>(weight.const_data_ptr());
  auto* out = static_cast<T*>(result.mutable_data_ptr());
  const int64_t n = weight.numel();
  libtorch::parallel_for(0, mask_bytes(n), kGrain, [&](int64_t from, int64_t to) {
    int64_t i = from;
    for (; i < to && 8 * i + 8 <= n; ++i) {
      const int byte = bits[i];
      for (int l = 0; l < 8; ++l) out[8 * i + l] = (byte >> l & 1) != 0 ? in[8 * i + l] : T{0};
    }
    if (i == to) return;
    for (int64_t e = 8 * i; e < n; ++e) out[e] = (bits[i] >> (e - 8 * i) & 1) != 0 ? in[e] : T{0};
  });
}

Tensor apply_mask_kernel(const Tensor& weight, const Tensor& mask, bool) {
  check_mask("prune.apply_mask", "a mask", mask, weight.numel());
  if (weight.is_cpu() && weight.is_contiguous() && !weight.is_neg() && !weight.is_conj()) {
    Tensor result = at::empty_like(weight);
    const auto* bits = mask.const_data_ptr<uint8_t>();
    switch (weight.element_size()) {
      case 2:
        keep_elements<uint16_t>(weight, bits, result);
        return result;
      case 4:
        keep_elements<uint32_t>(weight, bits, result);
        return result;
      case 8:
        keep_elements<uint64_t>(weight, bits, result);
        return result;
      default:
        break;
    }
  }
  Tensor keep = unpack_mask(mask, weight.sizes()).to(weight.device());
  if (!weight.is_contiguous()) keep = at::empty_like(weight, keep.options()).copy_(keep);
  return at::where(keep, weight, at::zeros({}, weight.options()));
}

struct ApplyMask : public torch::autograd::Function<ApplyMask> {
  static Tensor forward(AutogradContext* context, const Tensor& weight, const Tensor& mask,
                        bool dense_gradient) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({mask});
    context->saved_data["dense"] = dense_gradient;
    return apply_mask_kernel(weight, mask, dense_gradient);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined() || context->saved_data["dense"].toBool()) return {grads[0], {}, {}};
    return {apply_mask(grads[0], context->get_saved_variables()[0], false), {}, {}};
  }
};

Tensor apply_mask_autograd(const Tensor& weight, const Tensor& mask, bool dense_gradient) {
  if (at::GradMode::is_enabled() && weight.requires_grad())
    return ApplyMask::apply(weight, mask, dense_gradient);
  at::AutoDispatchBelowADInplaceOrView below;
  return apply_mask(weight, mask, dense_gradient);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("apply_mask(Tensor weight, Tensor mask, bool dense_gradient=False) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("apply_mask", apply_mask_kernel);
}
TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("apply_mask", apply_mask_autograd);
}

Tensor apply_mask(const Tensor& weight, const Tensor& mask, bool dense_gradient) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ulp::apply_mask", "")
                             .typed<decltype(apply_mask_kernel)>();
  return op.call(weight, mask, dense_gradient);
}

}  // namespace ulp::prune
