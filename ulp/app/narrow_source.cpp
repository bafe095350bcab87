#include "ulp/app/narrow_source.h"

#include <torch/types.h>

#include <cstdio>
#include <utility>

#include "ulp/base/interrupt.h"

namespace ulp::app {

namespace {

std::string text(const char* format, auto... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

}  // namespace

NarrowSource::NarrowSource(const prune::CutRecipe& recipe, Setup setup)
    : recipe_(recipe), setup_(std::move(setup)) {}

void NarrowSource::show(const Stage& stage) const {
  if (setup_.progress) setup_.progress(stage);
}

void NarrowSource::compute_gradients(graph::GraphModule& module) {
  const bool taylor = recipe_.criterion == prune::Criterion::taylor;
  if (!taylor && recipe_.criterion != prune::Criterion::hessian) return;
  const std::vector<train::TaskBatch> batches = setup_.batches();
  const PollsInterrupts polls;
  if (taylor) {  // of the mean loss over the batches
    module.zero_grad();
    for (const train::TaskBatch& batch : batches) {
      check_interrupted();
      (train::cross_entropy(module.forward(batch.inputs), batch) / static_cast<double>(batches.size()))
          .backward();
    }
    return;
  }
  std::vector<train::TaskBatch> samples;
  for (const train::TaskBatch& batch : batches) {
    for (int64_t i = 0; i < batch.inputs.size(0); ++i)
      samples.push_back({batch.inputs.narrow(0, i, 1), batch.targets.narrow(0, i, 1)});
  }
  squares_ = prune::squared_gradients(module, static_cast<int64_t>(samples.size()),
                                      [&](graph::GraphModule& model, int64_t i) {
                                        check_interrupted();
                                        const train::TaskBatch& one = samples[static_cast<size_t>(i)];
                                        return train::cross_entropy(model.forward(one.inputs), one);
                                      });
}

void NarrowSource::find_widths() {
  if (!recipe_.measured_widths || widths_) return;
  const bool named = !setup_.width_table.empty();
  if (named && std::filesystem::exists(setup_.width_table)) {
    widths_ = prune::WidthTable::load(setup_.width_table);
    return;
  }
  prune::WidthMeasurement what;
  what.progress = [&](int64_t done, int64_t total) { show({"measure widths", "width", done, total}); };
  widths_ = measure_width_table(what, {.threads = setup_.threads, .rounds = 1, .round_seconds = 0.02});
  if (named) widths_->save(setup_.width_table);
}

double NarrowSource::seconds(const graph::GraphModule& module) {
  if (!meter_) meter_.emplace(*setup_.dense, LatencyOptions{.threads = setup_.threads});
  const double found = (*meter_)(module);
  ++measurements_;
  show({"measure cuts", "network", measurements_, measurements_});
  return found;
}

double NarrowSource::measure(const graph::GraphModule& module) {
  if (recipe_.measure == prune::Measure::latency) return seconds(module);
  const prune::ModelSize size = prune::size_of(module.graph());
  return static_cast<double>(recipe_.measure == prune::Measure::macs ? size.macs : size.parameters);
}

prune::NarrowerModel NarrowSource::narrow(graph::GraphModule& module, double share) {
  compute_gradients(module);
  find_widths();
  return prune::narrow(module, recipe_, share,
                       {.squared_gradients = &squares_,
                        .widths = widths_ ? &*widths_ : nullptr,
                        .seconds = [this](const graph::GraphModule& cut) { return seconds(cut); }});
}

std::vector<std::string> NarrowSource::notes(const prune::NarrowerModel& model) const {
  std::vector<std::string> lines;
  if (model.latency) {
    const prune::LatencySelection& found = *model.latency;
    lines.push_back(
        text("latency at batch 1: %.4g ms predicted, %.4g ms measured, %.3f of %.4g ms; %zu networks "
             "were measured",
             1e3 * found.chosen.predicted.value_or(found.chosen.measured), 1e3 * found.chosen.measured,
             found.chosen.measured / found.whole, 1e3 * found.whole, found.measurements.size()));
  }
  if (model.rounded.parameters != 0 || model.rounded.macs != 0) {
    lines.push_back(text("rounding widths kept %lld parameters and %lld multiplications more",
                         static_cast<long long>(model.rounded.parameters),
                         static_cast<long long>(model.rounded.macs)));
  }
  return lines;
}

}  // namespace ulp::app
