#include "ulp/app/quantize/mixed_precision_run.h"

#include <torch/utils.h>

#include "ulp/app/quantize/plan_metrics.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/lower/lower.h"

namespace ulp::app {

namespace {

constexpr int64_t kSearchBatch = 250;

}  // namespace

quant::MixedPrecision search_weights(const QuantizeRequest& request) {
  const quant::CalibrationData data = calibration_data(request.data, request.inputs, request.samples);
  if (!data) fail("app.run_quantize", "expected calibration samples for the search, got none");
  const PollsInterrupts polls;
  quant::MixedPrecisionHooks hooks;
  hooks.bytes = [](graph::GraphModule& model) { return weight_bytes(lower(model)); };
  if (request.data && request.test) {
    hooks.loss = [&](graph::GraphModule& model) {
      const auto batches =
          request.data->first(request.samples).stream({.batch = request.data->batch(kSearchBatch)});
      return train::evaluate([&](const train::TaskBatch& batch) { return model.forward(batch.inputs); },
                             *batches)
          .loss;
    };
  }
  hooks.on_step = [&](const char* stage, int64_t done, int64_t total, const std::string& note) {
    check_interrupted();
    if (request.progress) request.progress({stage, "model", done, total, note});
  };
  return quant::search_mixed_precision(request.captured,
                                       std::get<quant::WeightOnlyRecipe>(request.recipe.recipe), data, hooks);
}

}  // namespace ulp::app
