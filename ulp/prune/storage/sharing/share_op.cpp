// ulp::share_weights by LibTorch's operators.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/types.h>

#include "ulp/base/error.h"
#include "ulp/prune/storage/sharing/shared_weights.h"

namespace ulp::prune {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kShareOpWhere = "prune.share_weights";
constexpr int64_t kMostCodebookEntries = 256;

void check_codes(const Tensor& codes, int64_t entries, const std::optional<Tensor>& mask) {
  if (codes.scalar_type() != at::kByte)
    fail(kShareOpWhere, "expected codes of dtype Byte, got ", codes.scalar_type());
  if (mask && (mask->scalar_type() != at::kBool || mask->sizes() != codes.sizes())) {
    fail(kShareOpWhere, "expected a mask of dtype Bool and the shape of the codes, ", codes.sizes(), ", got ",
         mask->scalar_type(), " ", mask->sizes());
  }
  if (entries >= kMostCodebookEntries || codes.numel() == 0) return;
  const auto largest = codes.max().item<uint8_t>();
  if (largest >= entries)
    fail(kShareOpWhere, "expected codes below ", entries, ", got ", static_cast<int>(largest));
}

Tensor share_weights_kernel(const Tensor& codebook, const Tensor& codes, const std::optional<Tensor>& mask) {
  if (!codebook.is_floating_point() || codebook.dim() != 1 || codebook.numel() < 1 ||
      codebook.numel() > kMostCodebookEntries) {
    fail(kShareOpWhere, "expected a floating-point codebook of 1 to ", kMostCodebookEntries, " entries, got ",
         codebook.scalar_type(), " ", codebook.sizes());
  }
  check_codes(codes, codebook.numel(), mask);
  const Tensor weight = codebook.index_select(0, codes.flatten().to(at::kInt)).view(codes.sizes());
  return mask ? at::where(*mask, weight, at::zeros({}, weight.options())) : weight;
}

struct ShareFunction : public torch::autograd::Function<ShareFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& codebook, const Tensor& codes,
                        const std::optional<Tensor>& mask) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({codes, mask.value_or(Tensor())});
    context->saved_data["entries"] = codebook.numel();
    return share_weights_kernel(codebook, codes, mask);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::optional<Tensor> mask = saved[1].defined() ? std::optional(saved[1]) : std::nullopt;
    return {codebook_gradient(gradients[0], context->saved_data["entries"].toInt(), saved[0], mask), {}, {}};
  }
};

Tensor share_weights_autograd(const Tensor& codebook, const Tensor& codes,
                              const std::optional<Tensor>& mask) {
  if (at::GradMode::is_enabled() && codebook.requires_grad())
    return ShareFunction::apply(codebook, codes, mask);
  at::AutoDispatchBelowADInplaceOrView below;
  return share_weights(codebook, codes, mask);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("share_weights(Tensor codebook, Tensor codes, Tensor? mask) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("share_weights", share_weights_kernel);
}
TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("share_weights", share_weights_autograd);
}

Tensor share_weights(const Tensor& codebook, const Tensor& codes, const std::optional<Tensor>& mask) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ulp::share_weights", "")
                             .typed<decltype(share_weights_kernel)>();
  return op.call(codebook, codes, mask);
}

Tensor codebook_gradient(const Tensor& gradient, int64_t entries, const Tensor& codes,
                         const std::optional<Tensor>& mask) {
  if (entries < 1 || entries > kMostCodebookEntries)
    fail(kShareOpWhere, "expected 1 to ", kMostCodebookEntries, " entries, got ", entries);
  if (gradient.sizes() != codes.sizes())
    fail(kShareOpWhere, "expected a gradient of the shape of the codes, ", codes.sizes(), ", got ",
         gradient.sizes());
  check_codes(codes, entries, mask);
  const Tensor wide = gradient.to(at::kDouble);
  const Tensor kept = mask ? at::where(*mask, wide, at::zeros({}, wide.options())) : wide;
  return at::bincount(codes.flatten(), kept.flatten(), entries).to(gradient.scalar_type());
}

}  // namespace ulp::prune
