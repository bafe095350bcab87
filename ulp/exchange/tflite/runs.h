// Averages over windows of several sizes: each run of equal windows at equal distances by an operator of its
// own, whose results are joined. The numbers are those of the operator for windows, codes included.
#pragma once

#include "ulp/exchange/tflite/converters.h"
#include "ulp/quant/static/window_runs.h"

namespace ulp::exchange::tflite {

using quant::Spans;

/// What LibTorch averages: the elements in the image. Where padding counts, those in the image and its
/// padding, counted from the first of the padding.
Spans spans_of(const Window& window, bool counts_padding);

/// Averages of an image [N, H, W, C], or of its codes, over the windows of these rows and columns. Refuses
/// windows of so many sizes that the file would get more than some hundred operators.
void average_runs(Builder& builder, const graph::Node& node, Index image, Index to, const Spans& rows,
                  const Spans& columns);

}  // namespace ulp::exchange::tflite
