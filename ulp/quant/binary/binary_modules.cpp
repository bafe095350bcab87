#include "ulp/quant/binary/binary_modules.h"

#include <torch/types.h>

#include <limits>

#include "ulp/quant/binary/binary_scale.h"
#include "ulp/quant/scheme/quantizer.h"

namespace ulp::quant {

at::Tensor ActivationSigns::forward(const at::Tensor& x) {
  const bool signs = state_->fake_quant_enabled;
  at::Tensor y = x;
  if (signs) y = binarize(x, gradient_);
  if (!signs && bounds_) y = x.clamp(bounds_->low, bounds_->high);
  return sides_.empty() ? y : at::constant_pad_nd(y, sides_, signs ? 1 : 0);
}

at::Tensor ActivationScale::forward(const at::Tensor& scale) {
  return state_->fake_quant_enabled ? scale : at::ones_like(scale);
}

at::Tensor WeightSigns::forward(const at::Tensor& weight) {
  if (state_->fake_quant_enabled && state_->binary_weights) {
    return options_.ternary ? ternarize(weight) : binarize(weight);
  }
  if (options_.ternary || options_.scale == BinaryScale::none) return weight;
  const at::Tensor mean = mean_scale(weight, weight.dim());
  return weight / mean.clamp_min(std::numeric_limits<float>::min());
}

}  // namespace ulp::quant
