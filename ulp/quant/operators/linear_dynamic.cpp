// ulp::linear_dynamic by LibTorch's operators: what engines are compared with, in no hurry.
#include <torch/library.h>
#include <torch/utils.h>

#include <limits>

#include "ulp/base/error.h"
#include "ulp/kernels/linear/dynamic_linear.h"
#include "ulp/quant/static/op_support.h"
#include "ulp/quant/weights/dynamic.h"

namespace ulp::quant {
namespace {

using at::Tensor;

constexpr const char* kLinearDynamicWhere = "quant.linear_dynamic";

/// Scale and zero point of each row of bounds, f32 [rows, 1].
struct RowParams {
  Tensor scale, zero;
};

RowParams row_params(const Tensor& x, bool per_tensor) {
  const Tensor rows = per_tensor ? x.reshape({1, -1}) : x;
  const Tensor low = rows.amin(1).clamp_max(0).contiguous(), high = rows.amax(1).clamp_min(0).contiguous();
  RowParams params{at::empty({rows.size(0), 1}, at::kFloat), at::empty({rows.size(0), 1}, at::kFloat)};
  for (int64_t r = 0; r < rows.size(0); ++r) {
    const float min = low.const_data_ptr<float>()[r], max = high.const_data_ptr<float>()[r];
    const bool finite = std::isfinite(min) && std::isfinite(max);
    const kernels::Affine q = finite ? kernels::dynamic_affine(min, max)
                                     : kernels::Affine{std::numeric_limits<float>::quiet_NaN(), 0};
    params.scale.mutable_data_ptr<float>()[r] = q.scale;
    params.zero.mutable_data_ptr<float>()[r] = static_cast<float>(q.zero_point);
  }
  return params;
}

void check(const Tensor& x, const Tensor& weight, const Tensor& scale, const std::optional<Tensor>& bias) {
  check_floating(kLinearDynamicWhere, x);
  if (weight.dim() != 2 || weight.scalar_type() != at::kChar) {
    fail(kLinearDynamicWhere, "expected int8 weights [O, K], got ", weight.scalar_type(), " ",
         weight.sizes());
  }
  if (x.dim() < 1 || x.size(-1) != weight.size(1) || x.numel() == 0) {
    fail(kLinearDynamicWhere, "expected an input [..., ", weight.size(1), "], got ", x.sizes());
  }
  if (weight.size(1) > kernels::kMaxDynamicFeatures) {
    fail(kLinearDynamicWhere, "expected at most ", kernels::kMaxDynamicFeatures, " input features");
  }
  const auto is_channels = [&](const Tensor& t) { return t.dim() == 1 && t.size(0) == weight.size(0); };
  if (!is_channels(scale) || (bias && !is_channels(*bias))) {
    fail(kLinearDynamicWhere, "expected scales and bias of ", weight.size(0), " channels");
  }
}

Tensor linear_dynamic_kernel(const Tensor& x, const Tensor& weight, const Tensor& weight_scale,
                             const std::optional<Tensor>& bias, bool per_tensor) {
  const at::NoGradGuard no_grad;
  check(x, weight, weight_scale, bias);
  const Tensor rows = x.to(at::kCPU, at::kFloat).reshape({-1, x.size(-1)});
  const RowParams params = row_params(rows, per_tensor);
  const Tensor centered =
      at::minimum(at::maximum(rows * (1.0F / params.scale), -params.zero), 255 - params.zero).round();
  // Sums of whole numbers below 2^53 are exact in double.
  const Tensor sums = centered.to(at::kDouble).matmul(weight.to(at::kDouble).t()).to(at::kFloat);
  Tensor y = sums * (params.scale * weight_scale.to(at::kFloat));
  if (bias) y = y + bias->to(at::kFloat);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return y.reshape(sizes).to(x.options());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "linear_dynamic(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias, bool per_tensor) "
      "-> Tensor");
}

TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("linear_dynamic", linear_dynamic_kernel);
}

TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("linear_dynamic", torch::CppFunction::makeFallthrough());
}

Tensor linear_dynamic(const Tensor& x, const Tensor& weight, const Tensor& weight_scale,
                      const std::optional<Tensor>& bias, bool per_tensor) {
  static const auto op = find_operator<decltype(linear_dynamic_kernel)>("ulp::linear_dynamic");
  return op.call(x, weight, weight_scale, bias, per_tensor);
}

}  // namespace ulp::quant
