// The second operand of a node of two, as versions of ONNX before 7 lay it over the first.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// Whether the second operand lies along the dimensions of the first from attribute 'axis' on, in the place
/// of the last ones.
bool has_axis(const Call& call);

/// Input 1 in the shape in which LibTorch lays it over input 0.
at::Tensor second_operand(Call& call);

}  // namespace ulp::exchange::onnx_import
