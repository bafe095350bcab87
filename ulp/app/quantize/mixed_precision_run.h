// The search for bits of weights with the tool's data.
#pragma once

#include "ulp/app/quantize/quantize_run.h"
#include "ulp/quant/weights/mixed_precision.h"

namespace ulp::app {

/// Searches by the cross-entropy over the first `samples` of the data, or where there are no labels (no test
/// samples) by the error of the results; bytes are those of the engine's weights. Throws ulp::Error for no
/// samples. On Ctrl-C it gives the best so far, or throws Interrupted.
quant::MixedPrecision search_weights(const QuantizeRequest& request);

}  // namespace ulp::app
