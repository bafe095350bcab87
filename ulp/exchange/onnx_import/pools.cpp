// Pooling.
#include <torch/types.h>

#include <limits>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/windows.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

Window pool_window(const Call& call, const Tensor& x) {
  return window_of(call, x, call.attribute("kernel_shape", Sizes()));
}

/// LibTorch pads by half of the window at most.
bool fits(const Window& window) {
  bool small = window.even();
  for (size_t d = 0; d < window.kernel.size(); ++d) small = small && 2 * window.before[d] <= window.kernel[d];
  return small;
}

void max_pool(Call& call) {
  if (call.wants(1)) call.refuse("expected nobody to ask for the places of the largest");
  Tensor x = call.x(0);
  Window window = pool_window(call, x);
  if (!fits(window)) x = padded(x, window, -std::numeric_limits<double>::infinity());
  const bool ceil = call.attribute("ceil_mode", int64_t{0}) != 0;
  switch (window.kernel.size()) {
    case 1:
      return call.set(
          at::max_pool1d(x, window.kernel, window.strides, window.before, window.dilations, ceil));
    case 2:
      return call.set(
          at::max_pool2d(x, window.kernel, window.strides, window.before, window.dilations, ceil));
    default:
      return call.set(
          at::max_pool3d(x, window.kernel, window.strides, window.before, window.dilations, ceil));
  }
}

Tensor average(const Tensor& x, const Window& window, bool ceil, bool with_padding) {
  switch (window.kernel.size()) {
    case 1:
      return at::avg_pool1d(x, window.kernel, window.strides, window.before, ceil, with_padding);
    case 2:
      return at::avg_pool2d(x, window.kernel, window.strides, window.before, ceil, with_padding);
    default:
      return at::avg_pool3d(x, window.kernel, window.strides, window.before, ceil, with_padding);
  }
}

void average_pool(Call& call) {
  const Tensor x = call.x(0);
  Window window = pool_window(call, x);
  for (const int64_t one : window.dilations) {
    if (one != 1) call.refuse("expected no dilation");
  }
  const bool ceil = call.attribute("ceil_mode", int64_t{0}) != 0;
  const bool with_padding = call.attribute("count_include_pad", int64_t{0}) != 0;
  if (fits(window)) return call.set(average(x, window, ceil, with_padding));
  Window around = window;
  const Tensor wide = padded(x, window, 0);
  if (with_padding) return call.set(average(wide, window, ceil, true));
  // Means over what lies in the image alone: over all, divided by its share.
  const Tensor share = average(padded(at::ones_like(x), around, 0), window, ceil, true);
  call.set(at::div(average(wide, window, ceil, true), share));
}

void global_average(Call& call) {
  const Tensor x = call.x(0);
  switch (x.dim()) {
    case 3:
      return call.set(at::adaptive_avg_pool1d(x, 1));
    case 4:
      return call.set(at::adaptive_avg_pool2d(x, {1, 1}));
    case 5:
      return call.set(at::adaptive_avg_pool3d(x, {1, 1, 1}));
    default:
      call.refuse("expected an input of 3 to 5 dimensions, got ", x.dim());
  }
}

void global_max(Call& call) {
  const Tensor x = call.x(0);
  switch (x.dim()) {
    case 3:
      return call.set(std::get<0>(at::adaptive_max_pool1d(x, 1)));
    case 4:
      return call.set(std::get<0>(at::adaptive_max_pool2d(x, {1, 1})));
    default:
      call.refuse("expected an input of 3 or 4 dimensions, got ", x.dim());
  }
}

}  // namespace

ConverterTable pool_table() {
  static constexpr Converter kTable[] = {{"MaxPool", max_pool, pooled},
                                         {"AveragePool", average_pool, pooled},
                                         {"GlobalAveragePool", global_average},
                                         {"GlobalMaxPool", global_max}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
