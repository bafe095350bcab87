// Codes of a converted network decided by data, layer after layer: learned rounding and corrected biases.
// Internal.
#pragma once

#include <vector>

#include "ulp/graph/passes/pass.h"
#include "ulp/quant/calibrate.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/calibrated_weights.h"

namespace ulp::quant {

/// Gives layers without a bias one of zeros, which convert() then stores. Not for graphs that trained models
/// share.
void add_zero_biases(PreparedModule& prepared);

/// Replaces codes of weights (adaround) and biases (bias_correction) of `converted`, which convert() made of
/// `prepared`. Adds to the report. Throws ulp::Error naming the layer for no data, data that are not finite,
/// and batches that change from one call to the next.
void refine_layers(graph::GraphModule& converted, const PreparedModule& prepared,
                   const StaticMethods& methods, const CalibrationData& data, graph::PassReport& report,
                   std::vector<WeightError>* errors, const OnLayer& on_layer);

}  // namespace ulp::quant
