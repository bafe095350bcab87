// ulp::ternarize: weights of three values, with a gradient straight through.
#include <torch/library.h>
#include <torch/types.h>

#include "ulp/base/error.h"
#include "ulp/quant/operators/binary_ops.h"
#include "ulp/quant/operators/straight_through.h"
#include "ulp/quant/static/op_support.h"

namespace ulp::quant {
namespace {

using at::Tensor;

constexpr const char* kTernarizeWhere = "quant.ternarize";

Tensor ternarize_kernel(const Tensor& weight, double ratio) {
  check_floating(kTernarizeWhere, weight);
  if (weight.dim() < 2 || weight.numel() == 0) {
    fail(kTernarizeWhere, "expected a weight [O, ...] with elements, got ", weight.sizes());
  }
  if (!(ratio >= 0)) fail(kTernarizeWhere, "expected a ratio >= 0, got ", ratio);
  const Tensor rows = weight.flatten(1), size = rows.abs();
  const Tensor kept = size > size.mean(1, /*keepdim=*/true) * ratio;
  const Tensor count = kept.sum(1, /*keepdim=*/true).clamp_min(1);
  const Tensor scale = (size * kept).sum(1, /*keepdim=*/true) / count;
  return (rows.sign() * kept * scale).to(weight.scalar_type()).view(weight.sizes());
}

Tensor call(const Tensor& weight, double ratio) {
  static const auto op = find_operator<decltype(ternarize_kernel)>("ulp::ternarize");
  return op.call(weight, ratio);
}

Tensor ternarize_autograd(const Tensor& weight, double ratio) {
  Tensor values;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    values = call(weight, ratio);
  }
  return straight_through(weight, values);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("ternarize(Tensor weight, float ratio) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("ternarize", ternarize_kernel);
}
TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("ternarize", ternarize_autograd);
}

Tensor ternarize(const Tensor& weight, double ratio) {
  return call(weight, ratio);
}

}  // namespace ulp::quant
