#include "ulp/app/quantize/quantize.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/quant/methods/scale_channels.h"
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
                        const quant::Calibrate& feed, const quant::OnLayer& on_layer) {
  QuantizedModel result;
  graph::PassReport scaling;
  const auto model = quant::scale_channels(captured, recipe, feed, &scaling);
  quant::Recipe rest = recipe;
  rest.methods = recipe.methods.behind_scaling();
  result.graph = quant::quantize(model, rest, feed, &result.report, nullptr, on_layer);
  if (model != captured) result.scaled = model;
  const auto put_first = [](const std::vector<std::string>& lines, std::vector<std::string>& all) {
    all.insert(all.begin(), lines.begin(), lines.end());
  };
  put_first(scaling.changes, result.report.changes);
  put_first(scaling.near_misses, result.report.near_misses);
  return result;
}

QuantizedModel quantize(const std::shared_ptr<graph::GraphModule>& captured, const quant::Recipe& recipe,
                        const SplitData& data, int64_t samples, const train::OnSamples& on_samples,
                        const quant::OnLayer& on_layer) {
  check_samples(samples);
  recipe.validate();
  const auto feed = [&](graph::GraphModule& model) { run_samples(model, data, samples, on_samples); };
  return app::quantize(captured, recipe, feed, on_layer);
}

}  // namespace ulp::app
