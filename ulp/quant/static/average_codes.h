// Averages of codes in a converted graph. Internal to the library.
#pragma once

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::quant {

/// dequantize -> average -> quantize, of codes of all 8 bits with one scale, becomes ulp::average_codes: a sum of
/// integers and one rounding, which engines do by the same rule. Averages are avg_pool1d and avg_pool2d, and
/// adaptive ones whose output size divides the input's. The quantize node keeps its name. convert() of a calibrated model
/// does it; that of a trained one leaves the graph that was trained, and lowering does it.
ULP_API void average_on_codes(graph::Graph& graph);

}  // namespace ulp::quant
