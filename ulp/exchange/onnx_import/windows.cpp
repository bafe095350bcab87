#include "ulp/exchange/onnx_import/windows.h"

#include <torch/types.h>

#include <algorithm>

namespace ulp::exchange::onnx_import {

namespace {

/// Of kernels, strides, dilations and pads: their products are far from the end of 64 bits.
constexpr int64_t kLargestWindow = int64_t{1} << 20;

/// A list of one number a dimension.
Sizes list_of(const Call& call, const char* name, size_t dims) {
  Sizes list = call.attribute(name, Sizes(dims, 1));
  const auto fits = [](int64_t value) { return value > 0 && value <= kLargestWindow; };
  if (list.size() != dims || !std::ranges::all_of(list, fits))
    call.refuse("expected ", dims, " numbers of 1 to ", kLargestWindow, " as attribute '", name, "'");
  return list;
}

/// As many results as the input has steps.
void pad_same(const Call& call, Window& window, const at::Tensor& x, bool more_behind) {
  const size_t dims = window.kernel.size();
  for (size_t d = 0; d < dims; ++d) {
    const int64_t size = x.size(static_cast<int64_t>(d) - static_cast<int64_t>(dims)),
                  step = window.strides[d];
    const int64_t missing = ((size + step - 1) / step - 1) * step + reach_of(window, d) - size;
    if (missing < -1)
      call.refuse("expected a window as large as its stride for auto_pad, by which runtimes differ, got ",
                  window.kernel[d], " and ", step);
    const int64_t total = std::max<int64_t>(0, missing);
    window.before[d] = more_behind ? total / 2 : total - total / 2;
    window.behind[d] = total - window.before[d];
  }
}

}  // namespace

Window window_of(const Call& call, const at::Tensor& x, Sizes kernel) {
  Window window = plain_window_of(call, x, std::move(kernel));
  const std::string automatic = call.attribute("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER")
    pad_same(call, window, x, automatic == "SAME_UPPER");
  return window;
}

Window plain_window_of(const Call& call, const at::Tensor& x, Sizes kernel) {
  const size_t dims = kernel.size();
  if (dims < 1 || dims > 3 || x.dim() != static_cast<int64_t>(dims) + 2)
    call.refuse("expected a window of 1 to 3 dimensions over the last ones of its input, got ", dims, " of ",
                x.dim());
  for (const int64_t size : kernel) {
    if (size < 1 || size > kLargestWindow)
      call.refuse("expected a window of sizes of 1 to ", kLargestWindow, ", got ", size);
  }
  Window window{.kernel = std::move(kernel),
                .strides = list_of(call, "strides", dims),
                .dilations = list_of(call, "dilations", dims),
                .before = Sizes(dims, 0),
                .behind = Sizes(dims, 0)};
  const std::string automatic = call.attribute("auto_pad", "NOTSET");
  if (automatic != "NOTSET") return window;
  const Sizes pads = call.attribute("pads", Sizes(2 * dims, 0));
  const auto is_pad = [](int64_t pad) { return pad >= 0 && pad <= kLargestWindow; };
  if (pads.size() != 2 * dims || !std::ranges::all_of(pads, is_pad))
    call.refuse("expected ", 2 * dims, " numbers of 0 to ", kLargestWindow, " as attribute 'pads'");
  window.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(dims));
  window.behind.assign(pads.begin() + static_cast<int64_t>(dims), pads.end());
  return window;
}

at::Tensor padded(const at::Tensor& x, Window& window, double value) {
  const size_t dims = window.kernel.size();
  Sizes pairs;
  for (size_t d = dims; d-- > 0;) {
    pairs.push_back(window.before[d]);
    pairs.push_back(window.behind[d]);
  }
  window.before = window.behind = Sizes(dims, 0);
  return at::constant_pad_nd(x, pairs, value);
}

}  // namespace ulp::exchange::onnx_import
