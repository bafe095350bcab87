#include "ulp/app/quantize.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::app {

namespace {

constexpr int64_t kCalibrationBatch = 100;

void check_samples(int64_t samples) {
  if (samples < 1) fail("app.quantize", "expected at least one calibration sample, got ", samples);
}

void run_samples(graph::GraphModule& prepared, const SplitData& data, int64_t samples,
                 const train::OnSamples& on_samples) {
  const auto batches = data.first(samples).stream({.batch = data.batch(kCalibrationBatch)});
  int64_t done = 0;
  const PollsInterrupts polls;
  while (const auto batch = batches->next()) {
    check_interrupted();
    prepared.forward_all({batch->inputs});
    done += batch->inputs.size(0);
    if (on_samples) on_samples(done);
  }
}

}  // namespace

std::shared_ptr<quant::PreparedModule> calibrate(const std::shared_ptr<graph::GraphModule>& captured,
                                                 const quant::Recipe& recipe, const SplitData& data,
                                                 int64_t samples, const train::OnSamples& on_samples) {
  check_samples(samples);
  auto prepared = quant::prepare(captured, recipe);
  prepared->eval();
  const torch::NoGradGuard no_grad;
  run_samples(*prepared, data, samples, on_samples);
  return prepared;
}

QuantizedModel quantize(const std::shared_ptr<graph::GraphModule>& captured, const quant::Recipe& recipe,
                        const SplitData& data, int64_t samples, const train::OnSamples& on_samples) {
  check_samples(samples);
  QuantizedModel result;
  const auto feed = [&](graph::GraphModule& prepared) { run_samples(prepared, data, samples, on_samples); };
  result.graph = quant::quantize(captured, recipe, feed, &result.report);
  return result;
}

}  // namespace ulp::app
