// Tensors that the importer computes itself and the model keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// `value` as a buffer of the model, under the name of the node's result and `ending`. Refuses a node whose
/// values differ between two sizes of the inputs. A node that is computed before the run reads `value` itself.
at::Tensor constant_of_node(Call& call, const std::string& ending, const at::Tensor& value);

}  // namespace ulp::exchange::onnx_import
