// Inputs of a file that the caller gives as numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "ulp/exchange/onnx_import/file_model.h"

namespace ulp::exchange::onnx_import {

/// Makes tensors of the file of these inputs of its graph. Throws FileError for a name that is no input, and
/// for a value of another type or of sizes that the input cannot have.
void give_values(FileModel& model, const std::map<std::string, at::Tensor>& values);

}  // namespace ulp::exchange::onnx_import
