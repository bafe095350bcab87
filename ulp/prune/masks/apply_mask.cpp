#include "ulp/prune/masks/apply_mask.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cstring>

#include "ulp/kernels/training/fake_quant.h"
#include "ulp/libtorch/torch_parallel.h"
#include "ulp/prune/masks/bit_mask.h"

namespace ulp::prune {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// On the kernel that masks the gradients of fake quantization, whose masks are words of the same bits.
Tensor keep_elements(const Tensor& weight, const Tensor& mask) {
  constexpr int64_t kBits = 64;
  const Tensor aligned = reinterpret_cast<uintptr_t>(mask.const_data_ptr()) % 8 == 0 ? mask : mask.clone();
  const auto* bits = aligned.const_data_ptr<uint8_t>();
  Tensor result = at::empty_like(weight);
  const int64_t bytes = weight.element_size(), whole = weight.numel() / kBits * kBits;
  const auto* in = static_cast<const char*>(weight.const_data_ptr());
  auto* out = static_cast<char*>(result.mutable_data_ptr());
  kernels::keep_inside(reinterpret_cast<const uint64_t*>(bits), bytes, in, whole, out,
                       kernels::selected_isa(), libtorch::TorchParallel());
  for (int64_t i = whole; i < weight.numel(); ++i) {  // the mask's last word may be cut off
    if ((bits[i / 8] >> i % 8 & 1) != 0) {
      std::memcpy(out + i * bytes, in + i * bytes, static_cast<size_t>(bytes));
    } else {
      std::memset(out + i * bytes, 0, static_cast<size_t>(bytes));
    }
  }
  return result;
}

Tensor apply_mask_kernel(const Tensor& weight, const Tensor& mask, bool) {
  check_mask("prune.apply_mask", "a mask", mask, weight.numel());
  const int64_t bytes = weight.element_size();
  const bool plain = weight.is_cpu() && weight.is_contiguous() && !weight.is_neg() && !weight.is_conj();
  if (plain && (bytes == 2 || bytes == 4 || bytes == 8)) return keep_elements(weight, mask);
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
