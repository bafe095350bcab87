// How data reach a model that is calibrated.
#pragma once

#include <functional>
#include <vector>

#include "ulp/graph/graph_module.h"

namespace ulp::quant {

/// Runs calibration batches through a model that it gets, in eval mode without gradients.
using Calibrate = std::function<void(graph::GraphModule& model)>;

/// Takes one batch: the inputs of the model, as GraphModule::run() does.
using RunBatch = std::function<void(const std::vector<at::Tensor>& inputs)>;
/// Calls `run` with each batch in turn. It is called once, or as often as the function says that takes it,
/// and has to give the same batches every time.
using CalibrationData = std::function<void(const RunBatch& run)>;

}  // namespace ulp::quant
