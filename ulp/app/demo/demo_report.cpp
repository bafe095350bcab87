#include <torch/types.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "ulp/app/demo/demo_parts.h"
#include "ulp/app/report/report_parts.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::app {

namespace {

using report::Better;
using report::Cell;
using report::Chart;
using report::ChartKind;

constexpr double kMillisecond = 1e-3;

template <typename T>
Cell optional_cell(const std::optional<T>& value, double unit = 1.0) {
  return value ? Cell(static_cast<double>(*value) / unit) : Cell();
}

using measure::is_disturbed;

/// The share of others as a cell in per cent.
Cell others_cell(const std::optional<double>& others) {
  return others ? Cell(100 * *others) : Cell();
}

report::Table variants_table(const std::vector<Variant>& variants) {
  report::Table table{.title = "Fashion-MNIST, one network in every precision",
                      .caption =
                          "LibTorch rows are trained and run eagerly (channels_last); their memory is the "
                          "peak of live tensors in "
                          "training. Engine rows hold the weights of the fp32 run; their memory is arena and "
                          "packed weights at batch 64. Others took: the largest share of the processors that "
                          "other programs used while one of the row's times was measured.",
                      .columns = {{"variant"},
                                  {"accuracy", "%", Better::higher, 2},
                                  {"epoch", "s", Better::lower, 1},
                                  {"memory", "MiB", Better::lower, 1},
                                  {"file", "KiB", Better::lower, 0},
                                  {"latency, batch 1", "ms", Better::lower, 3},
                                  {"throughput, batch 64", "images/s", Better::higher, 0},
                                  {"against LibTorch fp32", "x", Better::higher, 2},
                                  {"others took", "%", Better::none, 0}}};
  const Variant& baseline = variants.front();
  for (const Variant& v : variants) {
    table.add_row({v.name, v.accuracy ? Cell(v.accuracy->percent()) : Cell(),
                   v.epoch ? Cell(v.epoch->seconds) : Cell(), static_cast<double>(v.memory_bytes) / kMiB,
                   optional_cell(v.file_bytes, 1024.0), v.single.median / kMillisecond, v.throughput(),
                   v.throughput() / baseline.throughput(), others_cell(v.others())});
    if (v.epoch && is_disturbed(v.epoch->others)) {
      table.mark_last("epoch", measure::busy_mark(*v.epoch->others, v.epoch->cores, v.epoch->quiet));
    }
    mark_busy_time(table, v.single, "latency, batch 1");
    mark_busy(table, v.batched, "throughput, batch 64");
    mark_busy(table, v.batched.others < baseline.batched.others ? baseline.batched : v.batched,
              "against LibTorch fp32");
  }
  return table;
}

Chart loss_chart(const std::vector<TrainingRun>& runs) {
  Chart chart{.kind = ChartKind::line,
              .title = "Training loss",
              .caption = "The same network from the same seed: the lower precisions follow fp32.",
              .x = {.title = "step"},
              .y = {.title = "cross-entropy", .scale = report::Scale::log10, .better = Better::lower}};
  chart.smoothing = 0.9;
  for (const TrainingRun& run : runs) {
    const std::string name = run.precision == "fp16" ? "fp16 + GradScaler (short run)" : run.precision;
    chart.series.push_back({.name = name, .x = run.step, .y = run.loss});
  }
  return chart;
}

Chart scale_chart(const TrainingRun& half) {
  std::ostringstream skipped;
  skipped << half.skipped_steps << " of " << half.step.size() << " steps were skipped.";
  return {.kind = ChartKind::step,
          .title = "Loss scale of the fp16 run",
          .caption =
              "It starts too high on purpose: every overflow skips a step and halves the scale, ten clean "
              "steps double it. " +
              skipped.str(),
          .x = {.title = "step"},
          .y = {.title = "loss scale", .scale = report::Scale::log2},
          .series = {{.name = "fp16", .x = half.step, .y = half.scale}}};
}

Chart scatter(const std::vector<Variant>& variants, const char* title, const char* caption, report::Axis x,
              double (*value)(const Variant&), bool files_only) {
  Chart chart{.kind = ChartKind::scatter,
              .title = title,
              .caption = caption,
              .x = std::move(x),
              .y = {.title = "test accuracy", .unit = "%", .better = Better::higher}};
  for (const Variant& v : variants) {
    if (!v.accuracy || (files_only && !v.file_bytes)) continue;
    const bool busy = !files_only && is_disturbed(v.batched.others);
    chart.series.push_back({.name = v.name,
                            .x = {value(v)},
                            .y = {v.accuracy->percent()},
                            .labels = {busy ? v.name + " (busy)" : v.name}});
  }
  return chart;
}

const Variant& find(const std::vector<Variant>& variants, std::string_view name) {
  for (const Variant& v : variants) {
    if (v.name == name) return v;
  }
  return variants.front();
}

/// The results worth seeing first. Ratios of times that were disturbed are none.
std::vector<report::Headline> headlines(const std::vector<TrainingRun>& runs,
                                        const std::vector<Variant>& variants) {
  const Variant& base = variants.front();
  const Variant& int8 = find(variants, "engine int8");
  const Variant& fp32 = find(variants, "engine fp32");
  const Epoch wide = runs[0].epoch(), narrow = runs[1].epoch();
  std::optional<double> most;
  for (const Variant& v : variants) most = std::max(most, v.others());

  std::vector<report::Headline> lines;
  if (is_disturbed(most)) {
    lines.push_back(
        {"busy", number("other programs took up to %.0f %% of the processors: times marked busy are "
                        "not to be trusted",
                        100 * *most)});
  }
  if (!is_disturbed(int8.batched.others) && !is_disturbed(base.batched.others)) {
    lines.push_back({number("%.1f\u00d7", int8.throughput() / base.throughput()),
                     "int8 engine throughput against LibTorch fp32"});
  }
  lines.push_back({number("%+.2f", int8.accuracy->percent() - fp32.accuracy->percent()),
                   "points of accuracy, int8 against fp32"});
  lines.push_back({number("%.0f %%", 100.0 * static_cast<double>(*int8.file_bytes) /
                                         static_cast<double>(*fp32.file_bytes)),
                   "size of the int8 engine file against fp32"});
  if (!is_disturbed(wide.others) && !is_disturbed(narrow.others)) {
    lines.push_back(
        {number("%.2f\u00d7", wide.seconds / narrow.seconds), "bf16 training speed against fp32"});
  }
  return lines;
}

}  // namespace

report::Report make_report(const std::vector<TrainingRun>& runs, const std::vector<Variant>& variants,
                           const DemoOptions& options, double seconds) {
  report::Report report{
      .title = "ulp demo: " + options.model + " on Fashion-MNIST",
      .subtitle = "Trained in three precisions, quantized to int8, lowered and run without LibTorch",
      .created = report::timestamp()};
  report.headlines = headlines(runs, variants);
  report.tables.push_back(variants_table(variants));
  report.charts.push_back(loss_chart(runs));
  report.charts.push_back(scale_chart(runs.back()));
  report.charts.push_back(scatter(
      variants, "Accuracy against file size", "Further left is smaller, further up is better.",
      {.title = "file", .unit = "KiB", .better = Better::lower},
      [](const Variant& v) { return static_cast<double>(*v.file_bytes) / 1024.0; }, true));
  report.charts.push_back(scatter(
      variants, "Accuracy against throughput", "Further right is faster, further up is better.",
      {.title = "throughput, batch 64", .unit = "images/s", .better = Better::higher},
      [](const Variant& v) { return v.throughput(); }, false));
  report.settings = {{"network", options.model},
                     {"run", options.quick ? "quick: a few hundred steps, epoch times scaled up"
                                           : number("%.0f epochs", static_cast<double>(options.epochs))},
                     {"seed", std::to_string(options.seed)},
                     {"threads", std::to_string(at::get_num_threads())},
                     {"engine kernels", kernels::to_string(kernels::selected_isa())},
                     {"calibration", number("%.0f training images", static_cast<double>(kCalibrationImages))},
                     {"seconds in all", number("%.0f", seconds)}};
  report.machine = report::machine_facts();
  if (options.quick)
    report.notes.push_back(
        "A quick run: accuracies are those of a network trained for a few hundred steps only.");
  const auto busy = [](const Variant& v) { return is_disturbed(v.others()); };
  if (std::any_of(variants.begin(), variants.end(), busy)) {
    report.notes.push_back(
        "The machine was busy. Times marked so were measured up to three times (epochs: once each) and never "
        "without other programs on the processors; run the demo again on a quiet machine.");
  }
  report.notes.push_back(
      "Speeds are medians over rounds in which all variants ran in turn; LibTorch runs in inference mode.");
  return report;
}

}  // namespace ulp::app
