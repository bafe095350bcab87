// A graph whose calls are all operators of PyTorch's own, for programs that PyTorch alone runs.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::exchange::pt2 {

/// Spells out what PyTorch has no operator for, in place, with the same bits: ulp::quantize, dequantize,
/// average_codes, dequantize_weight, binarize, ternarize and depth_to_space; calls that keep the type of
/// their first argument though another one is wider, as operators in place do; and results that are made
/// without gradients. Other calls stay as they are.
void spell_out(graph::Graph& graph);

}  // namespace ulp::exchange::pt2
