#include "ulp/quant/static/bias_quantization.h"

#include <torch/types.h>

namespace ulp::quant {
namespace {

// Two roundings to float32, each of at most 2^-24.
constexpr double kRounding = 1 + 0x1p-22;

}  // namespace

at::Tensor smallest_weight_scale(const at::Tensor& bias, const at::Tensor& input_scale, int64_t count) {
  at::Tensor smallest = bias.abs().to(at::kDouble) / (input_scale.to(at::kDouble) * kLargestBias);
  if (count == 1) smallest = smallest.max().reshape({1});
  return smallest.to(at::kFloat);
}

std::optional<at::Tensor> bias_codes(const at::Tensor& bias, const at::Tensor& scales) {
  const at::Tensor codes = at::round(bias.to(at::kDouble) / scales.to(at::kDouble));
  if ((codes.abs() > kLargestBias * kRounding).any().item<bool>()) return std::nullopt;
  return codes.to(at::kInt);
}

}  // namespace ulp::quant
