#include "ulp/quant/scheme/float_scheme.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/formats/format.h"
#include "ulp/kernels/convert/convert.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::quant {
namespace {

using at::Tensor;

// Rows of float32 divided or multiplied by their scales need every scale beside its row.
Tensor row_scales(const char* where, at::IntArrayRef shape, const FloatQParams& params) {
  params.scheme.validate();
  const std::vector<int64_t> expected = scale_shape(params.scheme.granularity, shape);
  if (params.scale.sizes() != expected) {
    fail(where, "expected scales of shape ", at::IntArrayRef(expected), " for a tensor of shape ", shape, ' ',
         to_string(params.scheme.granularity), ", got ", params.scale.sizes());
  }
  return params.scale.detach().to(at::kCPU, at::kFloat).reshape({-1, 1});
}

}  // namespace

double FloatScheme::max() const {
  return formats::find(format).max();
}

void FloatScheme::validate() const {
  const formats::Format& target = formats::find(format);
  if (target.kind != formats::Kind::floating || target.bits() > 8) {
    fail("quant.FloatScheme", "expected a floating-point format of at most 8 bits, got ", target.name);
  }
  quant::validate(granularity);
}

std::string FloatScheme::to_string() const {
  return std::string(formats::find(format).name) + ' ' + quant::to_string(granularity);
}

FloatQParams choose_qparams(const Tensor& amax, const FloatScheme& scheme) {
  constexpr float kSmallestScale = 0x1p-126F;
  scheme.validate();
  const Tensor largest = amax.detach().to(at::kCPU, at::kFloat);
  if ((largest < 0).any().item<bool>())
    fail("quant.choose_qparams", "expected amax >= 0, got ", largest.min().item<float>());
  const Tensor usable = at::logical_and(at::isfinite(largest), largest > 0);
  const Tensor scale = at::clamp_min(largest / static_cast<float>(scheme.max()), kSmallestScale);
  const Tensor chosen = at::where(usable, scale, at::ones_like(scale));
  return {chosen.dim() == 0 ? chosen.reshape({1}) : chosen, scheme};
}

FloatQParams qparams_of(const Tensor& x, const FloatScheme& scheme) {
  const at::NoGradGuard no_grad;
  scheme.validate();
  const std::vector<int64_t> shape = scale_shape(scheme.granularity, x.sizes());
  if (x.numel() == 0) fail("quant.qparams_of", "expected at least one value, got shape ", x.sizes());
  const Tensor rows = to_rows(x.detach().to(at::kFloat), scheme.granularity);
  return choose_qparams(at::amax(rows.abs(), 1).reshape(shape), scheme);
}

Tensor quantize(const Tensor& x, const FloatQParams& params) {
  constexpr const char* kWhere = "quant.quantize";
  const at::NoGradGuard no_grad;
  if (!x.is_floating_point()) fail(kWhere, "expected a floating-point tensor, got ", x.scalar_type());
  const Tensor scales = row_scales(kWhere, x.sizes(), params);
  const Granularity& granularity = params.scheme.granularity;
  const Tensor scaled = (to_rows(x.detach().to(at::kCPU, at::kFloat), granularity) / scales).contiguous();
  Tensor codes = at::empty(scaled.sizes(), at::kByte);
  kernels::encode(formats::find(params.scheme.format), scaled.const_data_ptr<float>(),
                  codes.mutable_data_ptr<uint8_t>(), scaled.numel(), {}, kernels::selected_isa(),
                  libtorch::TorchParallel());
  return from_rows(codes, granularity, x.sizes());
}

Tensor dequantize(const Tensor& codes, const FloatQParams& params) {
  constexpr const char* kWhere = "quant.dequantize";
  const at::NoGradGuard no_grad;
  if (codes.scalar_type() != at::kByte)
    fail(kWhere, "expected codes of dtype Byte, got ", codes.scalar_type());
  const Tensor scales = row_scales(kWhere, codes.sizes(), params);
  const Granularity& granularity = params.scheme.granularity;
  const Tensor rows = to_rows(codes.to(at::kCPU), granularity).contiguous();
  Tensor values = at::empty(rows.sizes(), at::kFloat);
  kernels::decode(formats::find(params.scheme.format), rows.const_data_ptr<uint8_t>(),
                  values.mutable_data_ptr<float>(), rows.numel(), kernels::selected_isa(),
                  libtorch::TorchParallel());
  return from_rows(values.mul_(scales), granularity, codes.sizes());
}

Tensor quantize_dequantize(const Tensor& x, const FloatQParams& params) {
  return dequantize(quantize(x, params), params);
}

}  // namespace ulp::quant
