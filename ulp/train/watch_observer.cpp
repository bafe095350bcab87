#include "ulp/train/watch_observer.h"

#include "ulp/train/watch_report.h"

namespace ulp::train {

WatchObserver::WatchObserver(torch::nn::Module& model, const amp::WatchOptions& options)
    : watch_(model, options) {}

void WatchObserver::begin(int64_t step, double scale) {
  step_.reset();
  number_ = step;
  step_.emplace(watch_.begin_step(scale, step));
}

void WatchObserver::gradients(const torch::nn::Module&, double) {
  if (step_) step_->gradients();
}

void WatchObserver::end(const StepInfo& info) {
  loss_.x.push_back(static_cast<double>(info.step));
  loss_.y.push_back(info.loss);
  if (!step_) return;
  const bool sampled = step_->sampled();
  step_->end(info.result, info.loss);
  step_.reset();
  const std::string step = "step " + std::to_string(info.step) + ", ";
  if (amp::is_skipped(info.result)) {
    news_ = step + "skipped: " + watch_.summary().skipped.back().cause;
  } else if (sampled) {
    news_ = step + watch_.line();
  }
}

std::optional<std::string> WatchObserver::news() {
  return std::exchange(news_, std::nullopt);
}

std::string WatchObserver::explanation() {
  step_.reset();  // what a step that threw had seen is kept
  const auto& found = watch_.summary().nonfinite;
  return found.empty() || found.back().step != number_
             ? ""
             : "step " + std::to_string(found.back().step) + ": " + found.back().describe();
}

report::Report WatchObserver::report(const std::string& title, std::vector<report::Fact> settings) const {
  WatchReport parts = watch_report(watch_.summary());
  report::Report report{.title = title,
                        .subtitle = "What the number format does to gradients and to the results of ops",
                        .created = report::timestamp()};
  report.tables = std::move(parts.tables);
  report.charts = std::move(parts.charts);
  report.charts.push_back({.kind = report::ChartKind::line,
                           .title = "Training loss",
                           .x = {.title = "step"},
                           .y = {.title = "loss", .better = report::Better::lower},
                           .series = {loss_},
                           .smoothing = loss_.x.size() > 200 ? 0.95 : 0});
  report.notes = std::move(parts.notes);
  report.settings = std::move(settings);
  report.machine = report::machine_facts();
  return report;
}

}  // namespace ulp::train
