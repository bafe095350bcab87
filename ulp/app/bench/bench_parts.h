// What the parts of `ulp bench` share.
#pragma once

#include <vector>

#include "ulp/app/bench/bench.h"
#include "ulp/app/model_io/inference_model.h"

namespace ulp::app {

/// A batch to feed the model with (seed 0).
at::Tensor random_inputs(const InferenceModel& model, int64_t batch);

/// Memory for the output, whatever its type.
at::Tensor empty_output(const runtime::Engine& engine, int64_t batch);

/// "Callers": each engine called by one and by options.contexts callers at a time, at each batch size. A
/// caller is a thread with a context of its own; it runs on one thread unless options.threads says more. They
/// call for as long as a measurement of the same model takes. Throws Interrupted on Ctrl-C.
report::Table callers_table(const std::vector<InferenceModel>& models, const BenchOptions& options);

}  // namespace ulp::app
