// Values that an ONNX graph computes from sizes: whether they follow the sizes by a polynomial, as a captured graph takes it.
#pragma once

#include "ulp/exchange/onnx_import/inputs.h"
#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// Capture sees a graph at a few sizes of the inputs and takes values between and beyond them from a polynomial. Refuses
/// nodes, by name, whose results leave it at other sizes: min(batch, 5), batch % 8, batch > 5. Each node is computed by itself, beside the
/// capture, at sizes up to 65,537 (or the largest that is free) from what its inputs are there. Nodes whose results have more elements at larger
/// sizes are left out. After learn(): the store knows what does not follow sizes.
void check_straight_sizes(Store& store, const Inputs& inputs);

}  // namespace ulp::exchange::onnx_import
