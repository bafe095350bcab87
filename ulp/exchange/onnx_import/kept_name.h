// Names of the parameters and buffers that nodes make of tensors of the file.
#pragma once

#include <string>

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// The name of what `node` makes of its input `i`: `wish`, where every reader of that input makes the same of
/// it and no tensor of the file has the name. Else the node's result and `ending`, a name that no other node
/// makes anything under. Readers make the same where their operator, their attributes and their inputs from
/// `first` on are equal.
std::string kept_name(const Call& call, const FileNode& node, size_t i, const std::string& wish,
                      const std::string& ending = "", size_t first = 0);

}  // namespace ulp::exchange::onnx_import
