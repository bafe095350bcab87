// Values that an ONNX graph computes from sizes: whether they follow the sizes by a polynomial, as a captured graph takes it.
#pragma once

#include "ulp/exchange/onnx_import/inputs.h"
#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// Capture sees a graph at a few sizes of the inputs and takes numbers between and beyond them from a polynomial. Refuses
/// nodes, by name, whose results leave it at other sizes (min(batch, 5), batch % 8, batch > 5) where such a result becomes an
/// argument of a call, chooses a branch, or has been taken for a constant. What is read as a tensor is computed in the graph, at
/// any size. Each node is computed by itself, beside the capture, at sizes up to 65,537 (or the largest that is free) from what
/// its inputs are there, and the whole network once far from the sizes of the capture. Left out are nodes whose results have
/// more elements at larger sizes, what two sizes bend together, and sizes of slices that end beyond the far run's.
/// `run` was a run of the examples; the store knows what does not follow sizes, and what calls have taken.
void check_straight_sizes(Store& store, const Inputs& inputs, const Run& run);

}  // namespace ulp::exchange::onnx_import
