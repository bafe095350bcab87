#include "ulp/app/prune/importance_provider.h"

#include <torch/types.h>

#include <cstdio>
#include <utility>

#include "ulp/base/interrupt.h"
#include "ulp/prune/structured/activation_importance.h"
#include "ulp/prune/structured/shapley.h"

namespace ulp::app {

namespace {

std::string text(const char* format, auto... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

}  // namespace

ImportanceProvider::ImportanceProvider(const prune::ChannelPruningRecipe& recipe, Setup setup)
    : recipe_(recipe), setup_(std::move(setup)) {}

void ImportanceProvider::show(const Stage& stage) const {
  if (setup_.progress) setup_.progress(stage);
}

void ImportanceProvider::compute_gradients(graph::GraphModule& module) {
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

prune::Importance ImportanceProvider::score(const graph::GraphModule& module, const prune::Groups& groups) {
  using prune::ActivationScore, prune::Criterion;
  const bool losses = recipe_.criterion == Criterion::shapley;
  std::vector<std::vector<at::Tensor>> inputs =
      losses ? std::vector<std::vector<at::Tensor>>() : setup_.inputs;
  const std::vector<train::TaskBatch> batches =
      inputs.empty() ? setup_.batches() : std::vector<train::TaskBatch>();
  for (const train::TaskBatch& batch : batches) inputs.push_back({batch.inputs});
  const PollsInterrupts polls;
  if (losses) {
    const auto loss = [&](const std::vector<at::Tensor>& results, int64_t i) {
      check_interrupted();
      return train::cross_entropy(results.at(0), batches[static_cast<size_t>(i)]).item<double>();
    };
    return prune::shapley_values(module, groups, inputs, loss,
                                 {.permutations = recipe_.permutations, .seed = recipe_.seed})
        .values;
  }
  const ActivationScore what = recipe_.criterion == Criterion::apoz         ? ActivationScore::apoz
                               : recipe_.criterion == Criterion::activation ? ActivationScore::mean
                                                                            : ActivationScore::rank;
  return prune::activation_importance(module, groups, what, inputs, recipe_.normalization);
}

void ImportanceProvider::find_widths() {
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

double ImportanceProvider::seconds(const graph::GraphModule& module) {
  if (!meter_) meter_.emplace(*setup_.dense, LatencyOptions{.threads = setup_.threads});
  const double found = (*meter_)(module);
  ++measurements_;
  show({"measure cuts", "network", measurements_, measurements_});
  return found;
}

double ImportanceProvider::measure(const graph::GraphModule& module) {
  if (recipe_.measure == prune::Measure::latency) return seconds(module);
  return prune::measured(prune::size_of(module.graph()), recipe_.measure);
}

prune::PrunedModel ImportanceProvider::prune(graph::GraphModule& module, double share) {
  compute_gradients(module);
  find_widths();
  if (full_widths_.empty())
    full_widths_ = prune::widths_of(prune::groups(setup_.dense->graph(), {.inexact = recipe_.inexact}));
  prune::ImportanceInputs inputs{.squared_gradients = &squares_,
                                 .widths = widths_ ? &*widths_ : nullptr,
                                 .seconds = [this](const graph::GraphModule& cut) { return seconds(cut); },
                                 .full_widths = full_widths_};
  const bool by_gradients =
      recipe_.criterion == prune::Criterion::taylor || recipe_.criterion == prune::Criterion::hessian;
  if (prune::needs_data(recipe_.criterion) && !by_gradients)
    inputs.importance = [this](const auto& of, const auto& groups) { return score(of, groups); };
  return prune::prune_by_recipe(module, recipe_, share, inputs);
}

std::vector<std::string> ImportanceProvider::notes(const prune::PrunedModel& model) const {
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
