#include "ulp/quant/binary/binary_scale.h"

#include <torch/types.h>

#include "ulp/base/error.h"

namespace ulp::quant {

at::Tensor mean_scale(const at::Tensor& weight, int64_t dims) {
  std::vector<int64_t> shape(static_cast<size_t>(dims), 1);
  shape[0] = -1;
  return weight.abs().flatten(1).mean(1).view(shape);
}

std::vector<NamedScale> start_scales(BinaryScale scale, const at::Tensor& weight, at::IntArrayRef result) {
  if (!is_learned(scale)) return {};
  const at::NoGradGuard no_grad;
  const auto dims = static_cast<int64_t>(result.size());
  const at::Tensor mean = mean_scale(weight.detach(), dims).clone();
  if (scale == BinaryScale::output) return {{"scale", mean}};
  if (dims != 3) {
    fail("quant.BinaryScale", "expected a result [O, h, w] for a scale '", enum_name(scale), "', got ",
         result);
  }
  const int64_t h = result[1], w = result[2];
  if (scale == BinaryScale::full) return {{"scale", mean.expand({-1, h, w}).contiguous()}};
  if (scale == BinaryScale::spatial) {
    return {{"scale", mean}, {"scale_pixels", at::ones({1, h, w}, mean.options())}};
  }
  return {{"scale", mean},
          {"scale_rows", at::ones({1, h, 1}, mean.options())},
          {"scale_columns", at::ones({1, 1, w}, mean.options())}};
}

std::string box_obstacle(at::IntArrayRef kernel, at::IntArrayRef padding, at::IntArrayRef dilation) {
  for (size_t d = 0; d < kernel.size(); ++d) {
    if (dilation[d] != 1) return "an activation_scale needs dilation 1";
    if (2 * padding[d] > kernel[d]) return "an activation_scale needs a padding of at most half the kernel";
  }
  return "";
}

}  // namespace ulp::quant
