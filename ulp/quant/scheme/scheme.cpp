#include "ulp/quant/scheme/scheme.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

constexpr float kSmallestScale = 0x1p-23F;

// PyTorch takes 128 for plain u8 and the middle rounded down for every other range of unsigned codes.
int32_t symmetric_zero_point(const Scheme& scheme) {
  if (scheme.is_signed) return 0;
  return static_cast<int32_t>(scheme.bits == 8 ? 128 : (scheme.qmin() + scheme.qmax()) / 2);
}

/// In fp32 as PyTorch; a range that is wider than FLT_MAX is taken in double.
float affine_scale(float low, float high, float steps) {
  const float range = high - low;
  if (std::isfinite(range)) return range / steps;
  return static_cast<float>((static_cast<double>(high) - static_cast<double>(low)) /
                            static_cast<double>(steps));
}

void check_bounds(float low, float high, int64_t channel) {
  if (!std::isfinite(low) || !std::isfinite(high) || low > high) {
    fail("quant.choose_qparams", "expected finite min <= max, got [", low, ", ", high, "] in channel ",
         channel);
  }
}

}  // namespace

int64_t Scheme::qmin() const {
  if (!is_signed) return 0;
  const int64_t lowest = -(int64_t{1} << (bits - 1));
  return range == Range::restricted ? lowest + 1 : lowest;
}

int64_t Scheme::qmax() const {
  return (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
}

at::ScalarType Scheme::dtype() const {
  return is_signed ? at::kChar : at::kByte;
}

int64_t Scheme::axis() const {
  if (per_tensor()) return -1;
  if (!per_channel()) {
    fail("quant.Scheme", "expected a scheme per tensor or per channel, got ", to_string());
  }
  return std::get<PerChannel>(granularity).axis;
}

void Scheme::validate() const {
  check_limits("quant.Scheme", *this);
  if (!is_signed && range == Range::restricted) {
    fail("quant.Scheme", "expected the full range with unsigned codes, got restricted");
  }
  quant::validate(granularity);
}

void Scheme::visit_fields(FieldVisitor& visit) {
  visit({"bits", "Bits of a code", 2, 8}, bits);
  visit({"signed", "Codes around zero instead of from zero"}, is_signed);
  visit({"mapping", "Whether the zero point moves"}, mapping);
  visit({"range", "Which codes are used"}, range);
  visit_granularity(visit, {"granularity", "What shares a scale"}, granularity);
}

std::string Scheme::to_string() const {
  std::ostringstream text;
  text << (is_signed ? 's' : 'u') << bits << ' ' << enum_name(mapping);
  if (range == Range::restricted) text << ' ' << enum_name(range);
  text << ' ' << quant::to_string(granularity);
  return text.str();
}

ScaleZero choose_scale_zero(float min, float max, const Scheme& scheme) {
  const auto qmin = static_cast<float>(scheme.qmin()), qmax = static_cast<float>(scheme.qmax());
  const float low = std::min(min, 0.0F), high = std::max(max, 0.0F);
  if (scheme.mapping == Mapping::symmetric) {
    return {std::max(std::max(-low, high) / ((qmax - qmin) / 2), kSmallestScale),
            symmetric_zero_point(scheme)};
  }
  const float s = std::max(affine_scale(low, high, qmax - qmin), kSmallestScale);
  return {s, static_cast<int32_t>(std::clamp(qmin - std::nearbyint(low / s), qmin, qmax))};
}

QParams choose_qparams(const at::Tensor& min, const at::Tensor& max, const Scheme& scheme) {
  scheme.validate();
  if (min.sizes() != max.sizes()) {
    fail("quant.choose_qparams", "expected min and max of one shape, got ", min.sizes(), " and ",
         max.sizes());
  }
  // A bound without dimension is one scale, too.
  const bool flat = scheme.per_tensor() || scheme.per_channel();
  const std::vector<int64_t> shape = flat ? std::vector<int64_t>{min.numel()} : min.sizes().vec();
  const at::Tensor lows = min.detach().reshape(shape).to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor highs = max.detach().reshape(shape).to(at::kCPU, at::kFloat).contiguous();
  if (scheme.per_tensor() && lows.numel() != 1) {
    fail("quant.choose_qparams", "expected one min and max for a whole tensor, got ", lows.numel());
  }
  at::Tensor scale = at::empty_like(lows);
  at::Tensor zero_point = at::empty(lows.sizes(), at::kInt);
  for (int64_t c = 0; c < lows.numel(); ++c) {
    const float low = lows.const_data_ptr<float>()[c], high = highs.const_data_ptr<float>()[c];
    check_bounds(low, high, c);
    const ScaleZero chosen = choose_scale_zero(low, high, scheme);
    scale.mutable_data_ptr<float>()[c] = chosen.scale;
    zero_point.mutable_data_ptr<int32_t>()[c] = chosen.zero_point;
  }
  return {scale.to(min.device()), zero_point.to(min.device()), scheme};
}

}  // namespace ulp::quant
