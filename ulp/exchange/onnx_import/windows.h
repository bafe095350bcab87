// Windows that move over images: kernel, stride, padding, as ONNX says them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

using Sizes = std::vector<int64_t>;

/// A window of `dims` dimensions over the last ones of an input.
struct Window {
  Sizes kernel, strides, dilations;
  Sizes before, behind;  ///< padding
  bool even() const { return before == behind; }
};

/// How many pixels of dimension `d` the window lies over.
inline int64_t reach_of(const Window& window, size_t d) {
  return (window.kernel[d] - 1) * window.dilations[d] + 1;
}

/// Reads strides, dilations, pads and auto_pad. `x` has the sizes that SAME padding depends on.
Window window_of(const Call& call, const at::Tensor& x, Sizes kernel);

/// The same without auto_pad and its sizes.
Window plain_window_of(const Call& call, const at::Tensor& x, Sizes kernel);

/// `x` with the window's padding around its last dimensions, which is 0 in the window afterwards.
at::Tensor padded(const at::Tensor& x, Window& window, double value);

}  // namespace ulp::exchange::onnx_import
