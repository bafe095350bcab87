#include "ulp/models/rotary.h"

#include <torch/types.h>

#include <numbers>

namespace ulp::models {

namespace {

/// Frequencies whose waves are longer than the first training's texts / low_frequency_factor are divided by
/// the factor.
at::Tensor llama3_frequencies(const at::Tensor& plain, const RotaryConfig& config) {
  const auto length = static_cast<double>(config.original_length);
  const double low = config.low_frequency_factor, high = config.high_frequency_factor;
  const at::Tensor wave = 2 * std::numbers::pi / plain, slow = plain / config.factor;
  const at::Tensor ramp = (length / wave - low) / (high - low);
  const at::Tensor between = (1 - ramp) * slow + ramp * plain;
  return torch::where(wave > length / low, slow, torch::where(wave < length / high, plain, between));
}

}  // namespace

at::Tensor rotary_frequencies(const RotaryConfig& config, int64_t head_size) {
  const at::Tensor powers = torch::arange(0, head_size, 2).to(at::kFloat) / head_size;
  const at::Tensor plain = 1.0 / torch::pow(config.theta, powers);
  switch (config.scaling) {
    case RotaryScaling::linear:
      return plain / config.factor;
    case RotaryScaling::llama3:
      return llama3_frequencies(plain, config);
    case RotaryScaling::none:
      break;
  }
  return plain;
}

RotaryTables rotary_tables(const RotaryConfig& config, int64_t head_size, int64_t length) {
  const at::Tensor positions = torch::arange(length).to(at::kFloat);
  const at::Tensor half = torch::outer(positions, rotary_frequencies(config, head_size));
  const at::Tensor angles = torch::cat({half, half}, 1);
  return {angles.cos(), angles.sin()};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return x * cos + torch::cat({-halves[1], halves[0]}, -1) * sin;
}

}  // namespace ulp::models
