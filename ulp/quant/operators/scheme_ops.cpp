// The operators under a scheme: per tensor and per channel directly, all other granularities as rows.
#include <torch/types.h>

#include "ulp/base/error.h"
#include "ulp/quant/operators/ops.h"

namespace ulp::quant {
namespace {

using at::Tensor;

// op(tensor, scale, zero_point, axis)
template <typename Op>
Tensor with_parameters(const char* where, const Tensor& x, const QParams& p, Op op) {
  const Granularity& granularity = p.scheme.granularity;
  if (p.scheme.per_tensor() || p.scheme.per_channel()) return op(x, p.scale, p.zero_point, p.axis());
  const std::vector<int64_t> expected = scale_shape(granularity, x.sizes());
  if (p.scale.sizes() != expected || p.zero_point.sizes() != expected) {
    fail(where, "expected scales and zero points of shape ", at::IntArrayRef(expected),
         " for a tensor of shape ", x.sizes(), ' ', to_string(granularity), ", got ", p.scale.sizes(),
         " and ", p.zero_point.sizes());
  }
  const Tensor rows = to_rows(x, granularity);
  return from_rows(op(rows, p.scale.reshape(-1), p.zero_point.reshape(-1), 0), granularity, x.sizes());
}

}  // namespace

Tensor quantize(const Tensor& x, const QParams& p) {
  return with_parameters("quant.quantize", x, p,
                         [&](const auto& v, const auto& s, const auto& z, int64_t axis) {
                           return quantize(v, s, z, axis, p.scheme.qmin(), p.scheme.qmax(), p.scheme.dtype());
                         });
}

Tensor dequantize(const Tensor& q, const QParams& p) {
  return with_parameters(
      "quant.dequantize", q, p,
      [](const auto& v, const auto& s, const auto& z, int64_t axis) { return dequantize(v, s, z, axis); });
}

Tensor fake_quantize(const Tensor& x, const QParams& p) {
  return with_parameters("quant.fake_quantize", x, p,
                         [&](const auto& v, const auto& s, const auto& z, int64_t axis) {
                           return fake_quantize(v, s, z, axis, p.scheme.qmin(), p.scheme.qmax());
                         });
}

}  // namespace ulp::quant
