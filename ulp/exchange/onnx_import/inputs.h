// The inputs of an ONNX graph: which of their dimensions are the batch, which stay free, and examples to
// run it on.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/onnx_import/file_model.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::exchange::onnx_import {

/// What capture needs.
struct Inputs {
  std::vector<at::Tensor> examples;
  graph::CaptureOptions options;
  std::vector<FixedSize> fixed;  ///< free in the file, and of the size of images here
};

/// Whether the file says which dimension is the batch, or has none that could be.
bool has_batch(const FileModel& model);

/// The examples at other sizes, where a size is free.
std::vector<at::Tensor> at_other_sizes(const Inputs& inputs);

/// The examples at the smallest sizes that are free.
std::vector<at::Tensor> at_smallest_sizes(const Inputs& inputs);

/// The batch is the dimension that has "batch" in its name, or else the first dimension of the first input
/// if that has no number. Throws FileError for inputs that are no tensors, or whose number of dimensions is
/// not known.
Inputs read_inputs(const FileModel& model, const OnnxImportOptions& options);

}  // namespace ulp::exchange::onnx_import
