// PyTorch's older exporter writes equal tensors once: a fresh batch norm reads its weight as its running variance, too.
#pragma once

#include "ulp/exchange/onnx_import/file_model.h"

namespace ulp::exchange::onnx_import {

/// Gives each BatchNormalization running statistics of its own where it reads a tensor of the file that others read as well, itself or by
/// an Identity, whose name they get then. 64 MB of them at most; what is more stays shared.
void own_statistics(FileGraph& graph);

}  // namespace ulp::exchange::onnx_import
