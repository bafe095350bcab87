#include "ulp/quant/static/layer_codes.h"

#include <torch/types.h>

namespace ulp::quant {
namespace {

// Room for the accumulated products beside the bias in 32 bits.
constexpr double kLargestBias = 1 << 30;

}  // namespace

at::Tensor smallest_weight_scale(const at::Tensor& bias, const at::Tensor& input_scale, int64_t count) {
  at::Tensor smallest = bias.abs().to(at::kDouble) / (input_scale.to(at::kDouble) * kLargestBias);
  if (count == 1) smallest = smallest.max().reshape({1});
  return smallest.to(at::kFloat);
}

at::Tensor bias_codes(const at::Tensor& bias, const at::Tensor& scales) {
  return at::round(bias.to(at::kDouble) / scales.to(at::kDouble)).to(at::kInt);
}

}  // namespace ulp::quant
