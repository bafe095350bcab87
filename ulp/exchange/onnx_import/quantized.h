// Codes between QuantizeLinear and DequantizeLinear.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// The weight [out, in] of a linear layer from codes [in, out], whose channels are the columns. Undefined
/// where the node has other inputs than tensors of the file.
at::Tensor turned_codes(Call& call, const FileNode& dequantize);

/// The same of codes with a scale a block, [rows, columns] with the blocks along the columns: as ulp::dequantize_weight where that
/// has the form, else as floats that train.
at::Tensor block_weight(Call& call, const FileNode& dequantize);

}  // namespace ulp::exchange::onnx_import
