#include "ulp/models/rotary.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
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

/// The pair, whole or not, that turns so often in the first training's texts.
double pair_of_turns(double turns, const RotaryConfig& config, int64_t size) {
  const auto length = static_cast<double>(config.original_length);
  return static_cast<double>(size) * std::log(length / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(config.theta));
}

/// Frequencies of the first pairs stay, those of the last are divided by the factor, with a ramp between
/// them.
at::Tensor yarn_frequencies(const at::Tensor& waves, const RotaryConfig& config, int64_t size) {
  double low = pair_of_turns(config.beta_fast, config, size);
  double high = pair_of_turns(config.beta_slow, config, size);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(size - 1));
  if (low == high) high += 0.001;
  const at::Tensor pairs = torch::arange(size / 2).to(at::kFloat);
  const at::Tensor kept = 1 - ((pairs - low) / (high - low)).clamp(0, 1);
  return 1.0 / (config.factor * waves) * (1 - kept) + 1.0 / waves * kept;
}

}  // namespace

at::Tensor rotary_frequencies(const RotaryConfig& config, int64_t size) {
  const at::Tensor powers = torch::arange(0, size, 2).to(at::kFloat) / size;
  const at::Tensor waves = torch::pow(config.theta, powers), plain = 1.0 / waves;
  switch (config.scaling) {
    case RotaryScaling::linear:
      return plain / config.factor;
    case RotaryScaling::llama3:
      return llama3_frequencies(plain, config);
    case RotaryScaling::yarn:
      return yarn_frequencies(waves, config, size);
    case RotaryScaling::longrope:
      return 1.0 / (torch::tensor(config.divisors).to(at::kFloat) * waves);
    case RotaryScaling::none:
      break;
  }
  return plain;
}

double rotary_attention_factor(const RotaryConfig& config) {
  const bool scales = config.scaling == RotaryScaling::yarn || config.scaling == RotaryScaling::longrope;
  if (!scales) return 1;
  if (config.attention_factor > 0) return config.attention_factor;
  if (config.factor <= 1) return 1;
  if (config.scaling == RotaryScaling::yarn) return 0.1 * std::log(config.factor) + 1;
  return std::sqrt(1 + std::log(config.factor) / std::log(static_cast<double>(config.original_length)));
}

RotaryTables rotary_tables(const RotaryConfig& config, int64_t size, int64_t length) {
  const at::Tensor positions = torch::arange(length).to(at::kFloat);
  const at::Tensor half = torch::outer(positions, rotary_frequencies(config, size));
  const at::Tensor angles = torch::cat({half, half}, 1);
  const double factor = rotary_attention_factor(config);
  if (factor == 1) return {angles.cos(), angles.sin()};
  return {angles.cos() * factor, angles.sin() * factor};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t turned = cos.size(-1), rest = x.size(-1) - turned;
  if (rest > 0)
    return torch::cat({rotate(x.narrow(-1, 0, turned), cos, sin), x.narrow(-1, turned, rest)}, -1);
  const auto halves = x.chunk(2, -1);
  return x * cos + torch::cat({-halves[1], halves[0]}, -1) * sin;
}

}  // namespace ulp::models
