#include "ulp/amp/watch/watch_fp8.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/formats/convert.h"

namespace ulp::amp {

namespace {

/// What is larger rounds past the largest number.
double saturation_bound(const formats::Format& format) {
  return format.max() + (format.max() - formats::decode(format, format.max_code() - 1)) / 2;
}

int64_t count(const at::Tensor& mask) {
  return mask.sum().item<int64_t>();
}

/// The scale, of many the smallest; 0 where none is a number.
double scale_of(const Fp8Tensor& made) {
  const at::Tensor finite = made.scale_inv.masked_select(made.scale_inv.isfinite());
  return finite.numel() == 0 ? 0 : 1 / finite.max().item<double>();
}

}  // namespace

void Fp8Watch::start(int64_t step) {
  step_ = step;
  on_ = true;
  set_fp8_sink(this);
}

void Fp8Watch::stop() {
  if (std::exchange(on_, false)) set_fp8_sink(nullptr);
}

void Fp8Watch::quantized(const std::string& layer, Fp8Role role, const at::Tensor& source,
                         const Fp8Tensor& made) {
  const at::NoGradGuard no_grad;
  const auto [place, fresh] = index_.emplace(std::pair(layer, role), tensors_.size());
  if (fresh) tensors_.push_back({.layer = layer, .role = role, .format = std::string(made.format->name)});
  Fp8TensorStats& stats = tensors_[place->second];
  const at::Tensor x = source.detach().to(at::kFloat);
  const at::Tensor finite = x.isfinite(), size = x.abs();
  const at::Tensor kept = made.dequantized().abs(), numbers = made.values().abs();
  const double beyond = saturation_bound(*made.format) / made.format->max();
  stats.elements += x.numel();
  stats.nonzero += count(x != 0);
  stats.nonfinite += x.numel() - count(finite);
  stats.saturated += count(at::logical_and(numbers == made.format->max(), size > kept * beyond));
  stats.flushed += count(at::logical_and(at::logical_and(finite, numbers == 0), x != 0));
  const at::Tensor measured = size.masked_select(finite);
  const double amax = measured.numel() == 0 ? 0 : measured.max().item<double>();
  if (!stats.history.empty() && stats.history.back().step == step_) {
    stats.history.back().amax = std::max(stats.history.back().amax, amax);
    return;
  }
  stats.history.push_back({.step = step_, .scale = scale_of(made), .amax = amax});
}

}  // namespace ulp::amp
