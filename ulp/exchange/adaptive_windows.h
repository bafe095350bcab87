// Which elements of a dimension the windows of a pool are of, for writers whose formats have other windows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ulp::exchange {

/// The elements that each result of an adaptive pool along one dimension is of, as quant::adaptive_spans()
/// has them. All windows have as many elements as the largest one; shorter ones name their last one again.
/// `in` and `out` are 1 or more.
std::vector<std::vector<int64_t>> adaptive_elements(int64_t in, int64_t out);

/// Averages over these windows as a product: f64 [out, in].
at::Tensor adaptive_averages(int64_t in, int64_t out);

/// Windows along one dimension.
struct WindowRule {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad = 0;
};

/// The elements inside of the image that each window has: o stride - pad + k dilation. All windows have `kernel` elements; those that
/// reach into the padding name one of theirs again. Empty where a window has none.
std::vector<std::vector<int64_t>> window_elements(const WindowRule& rule);

}  // namespace ulp::exchange
