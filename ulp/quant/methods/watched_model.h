// Batches of a calibration function, one by one. Internal.
#pragma once

#include <memory>

#include "ulp/graph/graph_module.h"
#include "ulp/quant/calibrate.h"

namespace ulp::quant {

/// What `calibrate` runs through a copy of the model, as batches.
CalibrationData batches_of(const std::shared_ptr<graph::GraphModule>& captured, const Calibrate& calibrate);

}  // namespace ulp::quant
