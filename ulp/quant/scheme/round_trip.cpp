#include "ulp/quant/scheme/round_trip.h"

#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

void check_finite(const char* where, const at::Tensor& x) {
  const int64_t nans = at::isnan(x).sum().item<int64_t>(), infinities = at::isinf(x).sum().item<int64_t>();
  if (nans + infinities > 0)
    fail(where, "expected finite values, got ", nans, " NaN and ", infinities, " infinite");
}

}  // namespace

QParams qparams_of(const at::Tensor& x, const Scheme& scheme) {
  constexpr const char* kWhere = "quant.qparams_of";
  const at::NoGradGuard no_grad;
  scheme.validate();
  if (!x.is_floating_point()) fail(kWhere, "expected a floating-point tensor, got ", x.scalar_type());
  const std::vector<int64_t> shape = scale_shape(scheme.granularity, x.sizes());
  if (x.numel() == 0) fail(kWhere, "expected at least one value, got shape ", x.sizes());
  const at::Tensor rows = to_rows(x.detach().to(at::kFloat), scheme.granularity);
  check_finite(kWhere, rows);
  return choose_qparams(at::amin(rows, 1).reshape(shape), at::amax(rows, 1).reshape(shape), scheme);
}

at::Tensor quantize_dequantize(const at::Tensor& x, const QParams& params) {
  const at::NoGradGuard no_grad;
  return dequantize(quantize(x, params), params);
}

QuantError quantization_error(const at::Tensor& x, const at::Tensor& approximation) {
  constexpr const char* kWhere = "quant.quantization_error";
  const at::NoGradGuard no_grad;
  if (x.sizes() != approximation.sizes()) {
    fail(kWhere, "expected tensors of one shape, got ", x.sizes(), " and ", approximation.sizes());
  }
  if (x.numel() == 0) fail(kWhere, "expected at least one value, got shape ", x.sizes());
  const at::Tensor a = x.detach().to(at::kDouble).reshape(-1),
                   b = approximation.detach().to(at::kDouble).reshape(-1);
  check_finite(kWhere, a);
  check_finite(kWhere, b);
  const at::Tensor difference = a - b;
  const double signal = a.square().sum().item<double>(), noise = difference.square().sum().item<double>();
  const double other = b.square().sum().item<double>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  QuantError error;
  error.mse = noise / static_cast<double>(x.numel());
  error.max_abs = difference.abs().max().item<double>();
  error.sqnr_db = noise == 0 ? kInfinity : signal == 0 ? -kInfinity : 10 * std::log10(signal / noise);
  if (signal == 0 || other == 0) {
    error.cosine = signal == other ? 1 : 0;
  } else {
    error.cosine = a.dot(b).item<double>() / (std::sqrt(signal) * std::sqrt(other));
  }
  return error;
}

}  // namespace ulp::quant
