// Capture of a model in the common form of torch::nn and TorchScript.
#pragma once

#include <memory>
#include <vector>

#include "ulp/graph/capture/capture.h"
#include "ulp/graph/capture/trace.h"

namespace ulp::graph {

std::shared_ptr<GraphModule> capture_subject(Subject subject, const std::vector<at::Tensor>& examples,
                                             const CaptureOptions& options);

}  // namespace ulp::graph
