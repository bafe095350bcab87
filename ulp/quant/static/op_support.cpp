#include "ulp/quant/static/op_support.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"

namespace ulp::quant {

using at::Tensor;

Blocks blocks_of(const Tensor& dense, int64_t axis) {
  if (axis < 0 || dense.size(axis) == 1) return {1, 1, dense.numel()};
  const int64_t channels = dense.size(axis), inner = dense.stride(axis);
  return {dense.numel() / std::max<int64_t>(channels * inner, 1), channels, inner};
}

Params check_params(const char* where, const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                    int64_t axis) {
  if (axis < -1 || axis >= x.dim()) {
    fail(where, "expected a channel axis in [-1, ", x.dim() - 1, "], got ", axis);
  }
  const int64_t count = axis < 0 ? 1 : x.size(axis);
  if (scale.numel() != count || zero_point.numel() != count) {
    fail(where, "expected ", count, " scales and zero points for a tensor of shape ", x.sizes(), " and axis ",
         axis, ", got ", scale.numel(), " and ", zero_point.numel());
  }
  return {scale.detach().to(x.device(), at::kFloat).contiguous(),
          zero_point.detach().to(x.device(), at::kFloat).contiguous()};
}

void check_codes(const char* where, int64_t qmin, int64_t qmax, int64_t lowest, int64_t highest) {
  if (qmin > qmax || qmin < lowest || qmax > highest) {
    fail(where, "expected codes in [", lowest, ", ", highest, "], got [", qmin, ", ", qmax, "]");
  }
}

void check_floating(const char* where, const Tensor& x) {
  if (!x.is_floating_point()) fail(where, "expected a floating-point tensor, got ", x.scalar_type());
}

Tensor along(const Tensor& params, const Tensor& x, int64_t axis) {
  if (axis < 0) return params.reshape({});
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[static_cast<size_t>(axis)] = -1;
  return params.reshape(shape);
}

Tensor centered_generic(const Tensor& x, const Params& params, int64_t axis, int64_t qmin, int64_t qmax) {
  const Tensor zero = along(params.zero_point, x, axis);
  const Tensor scaled = x.to(at::kFloat) * along(params.scale, x, axis).reciprocal();
  const Tensor clamped = at::minimum(at::maximum(scaled, qmin - zero), qmax - zero);
  return at::round(at::where(at::isnan(scaled), qmin - zero, clamped));
}

}  // namespace ulp::quant
