#include "ulp/quant/scheme.h"

#include <algorithm>
#include <cmath>
#include <limits>
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
  const auto* channel = std::get_if<PerChannel>(&granularity);
  return channel ? channel->axis : -1;
}

void Scheme::validate() const {
  if (bits < 2 || bits > 8) fail("quant.Scheme", "expected 2 to 8 bits, got ", bits);
  if (!is_signed && range == Range::restricted) {
    fail("quant.Scheme", "expected the full range with unsigned codes, got restricted");
  }
  if (std::holds_alternative<PerChannel>(granularity) && axis() < 0) {
    fail("quant.Scheme", "expected a channel axis >= 0, got ", axis());
  }
}

std::string Scheme::to_string() const {
  std::ostringstream text;
  text << (is_signed ? 's' : 'u') << bits << (mapping == Mapping::affine ? " affine" : " symmetric");
  if (range == Range::restricted) text << " restricted";
  text << (axis() < 0 ? " per tensor" : " per channel");
  if (axis() >= 0) text << ' ' << axis();
  return text.str();
}

QParams choose_qparams(const at::Tensor& min, const at::Tensor& max, const Scheme& scheme) {
  scheme.validate();
  if (min.sizes() != max.sizes()) {
    fail("quant.choose_qparams", "expected min and max of one shape, got ", min.sizes(), " and ",
         max.sizes());
  }
  const at::Tensor lows = min.detach().reshape(-1).to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor highs = max.detach().reshape(-1).to(at::kCPU, at::kFloat).contiguous();
  if (scheme.axis() < 0 && lows.numel() != 1) {
    fail("quant.choose_qparams", "expected one min and max for a whole tensor, got ", lows.numel());
  }
  at::Tensor scale = at::empty_like(lows);
  at::Tensor zero_point = at::empty(lows.sizes(), at::kInt);
  const auto qmin = static_cast<float>(scheme.qmin()), qmax = static_cast<float>(scheme.qmax());
  for (int64_t c = 0; c < lows.numel(); ++c) {
    check_bounds(lows.const_data_ptr<float>()[c], highs.const_data_ptr<float>()[c], c);
    const float low = std::min(lows.const_data_ptr<float>()[c], 0.0F);
    const float high = std::max(highs.const_data_ptr<float>()[c], 0.0F);
    float s = 0;
    float z = 0;
    if (scheme.mapping == Mapping::symmetric) {
      s = std::max(std::max(-low, high) / ((qmax - qmin) / 2), kSmallestScale);
      z = static_cast<float>(symmetric_zero_point(scheme));
    } else {
      // A range wider than FLT_MAX would make the scale infinite and every value 0 or NaN.
      s = std::min(std::max((high - low) / (qmax - qmin), kSmallestScale), std::numeric_limits<float>::max());
      z = std::clamp(qmin - std::nearbyint(low / s), qmin, qmax);
    }
    scale.mutable_data_ptr<float>()[c] = s;
    zero_point.mutable_data_ptr<int32_t>()[c] = static_cast<int32_t>(z);
  }
  return {scale.to(min.device()), zero_point.to(min.device()), scheme};
}

}  // namespace ulp::quant
