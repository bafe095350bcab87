#include <algorithm>
#include <cstdio>
#include <limits>

#include "ulp/app/bench/bench_amp.h"
#include "ulp/app/report/report_parts.h"

namespace ulp::app {

namespace {

using report::Better;
using report::Cell;

/// The fp32 row of the same network, or null.
const AmpResult* baseline_of(const AmpResult& result, const std::vector<AmpResult>& all) {
  for (const AmpResult& one : all) {
    if (one.network == result.network && one.precision == "fp32") return &one;
  }
  return nullptr;
}

double speedup(const AmpResult& result, const AmpResult& fp32) {
  return fp32.seconds / result.seconds;
}

double memory_ratio(const AmpResult& result, const AmpResult& fp32) {
  return static_cast<double>(result.peak_bytes) / static_cast<double>(fp32.peak_bytes);
}

/// Bars: a series for each precision, a bar for each network.
report::Chart ratio_chart(const std::vector<AmpResult>& results, const AmpBenchOptions& options,
                          double (*ratio)(const AmpResult&, const AmpResult&), report::Chart chart) {
  chart.kind = report::ChartKind::bars;
  chart.x = {.title = "network"};
  for (const std::string& precision : options.precisions) {
    report::Series series{.name = precision};
    for (const AmpNetwork network : options.networks) {
      series.labels.emplace_back(to_string(network));
      series.y.push_back(std::numeric_limits<double>::quiet_NaN());
      for (const AmpResult& result : results) {
        if (result.network != network || result.precision != precision) continue;
        if (const AmpResult* fp32 = baseline_of(result, results)) series.y.back() = ratio(result, *fp32);
      }
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace

report::Table amp_table(const std::vector<AmpResult>& results) {
  report::Table table{
      .title = "Mixed precision",
      .caption =
          "One training step: forward, backward, AdamW. Memory is the peak of live tensors, weights and "
          "optimizer state included, as LibTorch's allocator reports them. Every precision of a network took "
          "the same steps on the same data.",
      .columns = {{"network"},
                  {"shape"},
                  {"parameters", "M", Better::none, 2},
                  {"precision"},
                  {"step", "ms"},
                  {"fastest", "ms"},
                  {"slowest", "ms"},
                  {"speed against fp32", "x", Better::none, 2},
                  {"memory", "MiB", Better::none, 1},
                  {"memory against fp32", "x", Better::none, 2},
                  {"steps", "", Better::none, 0},
                  {"first loss", "", Better::none, 3},
                  {"last loss", "", Better::none, 3},
                  {"others took", "%", Better::none, 0}}};
  for (const AmpResult& r : results) {
    const AmpResult* fp32 = baseline_of(r, results);
    table.add_row({to_string(r.network), r.shape, static_cast<double>(r.parameters) * 1e-6, r.precision,
                   r.seconds * 1e3, r.fastest * 1e3, r.slowest * 1e3, fp32 ? Cell(speedup(r, *fp32)) : Cell(),
                   static_cast<double>(r.peak_bytes) / kMiB, fp32 ? Cell(memory_ratio(r, *fp32)) : Cell(),
                   static_cast<double>(r.steps), r.first_loss, r.last_loss,
                   r.others ? Cell(100 * *r.others) : Cell()});
    if (measure::is_disturbed(r.others)) table.mark_last("step", measure::busy_mark(*r.others));
    if (const auto either = fp32 ? std::max(r.others, fp32->others) : std::nullopt;
        measure::is_disturbed(either)) {
      table.mark_last("speed against fp32", measure::busy_mark(*either));
    }
  }
  return table;
}

report::Table amp_profile_table(const AmpResult& result) {
  constexpr double kShown = 0.01;
  report::Table table{
      .title = std::string("Where the time goes: ") + to_string(result.network) + ", " + result.precision,
      .caption = "One training step by operator, without what the operator called; those above 1 %.",
      .columns = {
          {"operator"}, {"calls", "", Better::none, 0}, {"time", "ms"}, {"share", "%", Better::none, 1}}};
  double total = 0;
  for (const measure::OpTime& op : result.profile) total += op.seconds;
  for (const measure::OpTime& op : result.profile) {
    if (op.seconds < kShown * total) continue;
    table.add_row({op.op, static_cast<double>(op.calls), op.seconds * 1e3, 100 * op.seconds / total});
  }
  return table;
}

report::Report amp_report(const std::vector<AmpResult>& results, const AmpBenchOptions& options) {
  report::Report report{.title = "Mixed precision: what it saves",
                        .subtitle = "The three networks of the articles, trained with eager LibTorch",
                        .created = report::timestamp(),
                        .machine = report::machine_facts()};
  std::optional<double> most;
  for (const AmpResult& result : results) {
    most = std::max(most, result.others);
    const AmpResult* fp32 = baseline_of(result, results);
    if (!fp32 || result.precision != "O2:bf16") continue;
    if (measure::is_disturbed(std::max(result.others, fp32->others))) continue;
    char text[32];
    std::snprintf(text, sizeof text, "%.2f×", speedup(result, *fp32));
    report.headlines.push_back({text, std::string(to_string(result.network)) + ": bf16 steps against fp32"});
  }
  if (measure::is_disturbed(most)) {
    report.notes.push_back(
        "The machine was busy: times and speeds marked so are not to be trusted; run this "
        "again on a quiet machine.");
  }
  report.tables.push_back(amp_table(results));
  for (const AmpResult& result : results) {
    if (!result.profile.empty()) report.tables.push_back(amp_profile_table(result));
  }
  report.charts.push_back(ratio_chart(
      results, options, speedup,
      {.title = "Speed against fp32",
       .caption = "The larger the network, the more of its time is in products that bf16 makes faster.",
       .y = {.title = "speed", .unit = "x", .better = Better::higher, .minimum = 0.0}}));
  report.charts.push_back(
      ratio_chart(results, options, memory_ratio,
                  {.title = "Memory against fp32",
                   .caption = "Peak of live tensors.",
                   .y = {.title = "memory", .unit = "x", .better = Better::lower, .minimum = 0.0}}));
  report.settings = {{"masters of bf16 parameters", amp::to_string(options.masters)},
                     {"moments of bf16 parameters", amp::to_string(options.moments)},
                     {"rounds", std::to_string(options.rounds)},
                     {"seed", std::to_string(options.seed)}};
  return report;
}

}  // namespace ulp::app
