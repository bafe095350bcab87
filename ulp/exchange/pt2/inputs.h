// The inputs of a program: which of their dimensions are the batch, which stay free, and examples to run it on.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ulp/exchange/import_pt2.h"
#include "ulp/exchange/pt2/program.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::exchange::pt2 {

/// What capture needs.
struct Inputs {
  std::vector<at::Tensor> examples;
  graph::CaptureOptions options;
};

/// The batch is the first symbol that is a dimension 0; other symbols are free dimensions within their ranges. Throws FileError.
Inputs inputs_of(const Program& program, const Pt2ImportOptions& options);

}  // namespace ulp::exchange::pt2
