// The page of a roofline: the chart, the layers, the peaks.
#include <algorithm>
#include <functional>
#include <map>

#include "ulp/app/bench/peak_tables.h"
#include "ulp/app/report/report_parts.h"
#include "ulp/app/roofline/roofline.h"
#include "ulp/report/format.h"

namespace ulp::app {

namespace {

using report::Series;

/// Up to the ridge along the bandwidth.
Series slope(const measure::MemoryPeak& level, double rate, double from) {
  Series line{.name = level.name + " bandwidth", .joined = true};
  for (const double x : {from, rate / level.best()}) {
    line.x.push_back(x);
    line.y.push_back(x * level.best() / 1e9);
  }
  return line;
}

/// The roof of one peak: along the bandwidth, then flat.
Series roof(const std::string& name, double rate, double bandwidth, double from, double to) {
  const double ridge = rate / bandwidth;
  Series line{.name = name, .joined = true};
  for (const double x : {from, ridge, to}) {
    if (x < from || x > to || (!line.x.empty() && x == line.x.back())) continue;
    line.x.push_back(x);
    line.y.push_back(std::min(rate, x * bandwidth) / 1e9);
  }
  return line;
}

/// The parts that take most of the time have labels.
std::vector<std::string> labels_of(const std::vector<ProfiledPart>& parts) {
  constexpr size_t kLabels = 6;
  std::vector<size_t> order(parts.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return parts[i].seconds; });
  std::vector<std::string> labels(parts.size());
  for (size_t i = 0; i < std::min(kLabels, order.size()); ++i) labels[order[i]] = parts[order[i]].name;
  return labels;
}

report::Chart chart_of(const RooflineResult& result) {
  report::Chart chart{.kind = report::ChartKind::scatter,
                      .title = "Roofline",
                      .caption =
                          "A point is a layer. Lines are what the machine reaches at most: bandwidth on the "
                          "left, arithmetic on the "
                          "right. The layers that take most of the time have their names.",
                      .x = {.title = "intensity", .unit = "operations a byte", .scale = report::Scale::log10},
                      .y = {.title = "rate", .unit = "G/s", .scale = report::Scale::log10}};
  const std::vector<std::string> labels = labels_of(result.parts);
  const measure::Surroundings around{constant_bytes(result.parts)};
  std::map<measure::Bound, Series> series;
  double low = 1, high = 100;
  std::vector<kernels::MathType> types;
  for (size_t i = 0; i < result.parts.size(); ++i) {
    const ProfiledPart& part = result.parts[i];
    const measure::RooflinePoint placed =
        measure::roofline_point(part.work, part.seconds, result.peaks, around);
    if (!(placed.operations > 0) || !(placed.intensity > 0)) continue;
    Series& points = series[placed.bound];
    points.name = enum_name(placed.bound);
    points.x.push_back(placed.intensity);
    points.y.push_back(placed.operations / 1e9);
    points.labels.push_back(labels[i]);
    low = std::min(low, placed.intensity);
    high = std::max(high, placed.intensity);
    if (std::ranges::find(types, part.work.math) == types.end()) types.push_back(part.work.math);
  }
  for (auto& [bound, points] : series) chart.series.push_back(std::move(points));
  std::ranges::sort(types);
  const double memory = result.peaks.memory.back().best();
  for (const kernels::MathType type : types) {
    const measure::MathPeak& peak = result.peaks.fastest(type);
    chart.series.push_back(roof(std::string(kernels::to_string(type)) + " from memory", peak.rate, memory,
                                low / 2, std::max(high, peak.rate / memory) * 2));
  }
  if (types.empty()) return chart;
  double highest = 0;
  for (const kernels::MathType type : types) highest = std::max(highest, result.peaks.rate(type));
  for (const measure::MemoryPeak& level : result.peaks.memory) {
    const bool cache = &level != &result.peaks.memory.back();
    if (cache && low / 2 < highest / level.best()) chart.series.push_back(slope(level, highest, low / 2));
  }
  return chart;
}

report::Table layers_table(const RooflineResult& result) {
  using report::Better;
  using report::Cell;
  report::Table table{.title = "Layers",
                      .caption =
                          "Operations and bytes are counted from shapes; bytes are compulsory traffic: "
                          "inputs, weights and results once. "
                          "Bound by latency is what reaches less than half of both peaks.",
                      .columns = {{"layer"},
                                  {"op"},
                                  {"numbers"},
                                  {"operations", "M", Better::none, 2},
                                  {"bytes", "MB", Better::none, 3},
                                  {"intensity", "op/byte", Better::none, 1},
                                  {"time", "us", Better::none, 1},
                                  {"bound"},
                                  {"math", "% of peak", Better::none, 0},
                                  {"memory", "% of peak", Better::none, 0},
                                  {"of the whole", "%", Better::none, 1},
                                  {"rate", "G/s", Better::none, 1},
                                  {"bandwidth", "GB/s", Better::none, 1},
                                  {"kernel"}}};
  const measure::Surroundings around{constant_bytes(result.parts)};
  for (const ProfiledPart& part : result.parts) {
    if (part.work.bytes() == 0) continue;  // nothing to do: an alias
    const measure::RooflinePoint placed =
        measure::roofline_point(part.work, part.seconds, result.peaks, around);
    table.add_row({part.name, part.op, std::string(kernels::to_string(part.work.math)),
                   part.work.operations / 1e6, part.work.bytes() / 1e6, placed.intensity, part.seconds * 1e6,
                   measure::bound_text(placed), 100 * placed.math_share, 100 * placed.memory_share,
                   100 * part.seconds / result.seconds, placed.operations / 1e9, placed.bandwidth / 1e9,
                   part.kernel});
    if (placed.share() > 1)
      table.mark_last(placed.math_share > 1 ? "math" : "memory", "above what was measured as the peak");
  }
  return table;
}

report::Table bounds_table(const RooflineResult& result) {
  using report::Better;
  report::Table table{
      .title = "Bounds",
      .caption = "The time of the layers by what bounds them, and how long they would take at their bounds.",
      .columns = {{"bound"},
                  {"layers"},
                  {"time", "ms", Better::none, 3},
                  {"of the whole", "%", Better::none, 1},
                  {"at the bound", "ms", Better::none, 3}}};
  struct Sum {
    double layers = 0, seconds = 0, least = 0;
  };
  std::map<measure::Bound, Sum> sums;
  const measure::Surroundings around{constant_bytes(result.parts)};
  Sum whole;
  for (const ProfiledPart& part : result.parts) {
    if (part.work.bytes() == 0) continue;
    const measure::RooflinePoint placed =
        measure::roofline_point(part.work, part.seconds, result.peaks, around);
    for (Sum* sum : {&sums[placed.bound], &whole}) {
      sum->layers += 1;
      sum->seconds += part.seconds;
      sum->least += part.seconds * placed.share();
    }
  }
  const auto row = [&](const std::string& name, const Sum& sum) {
    table.add_row({name, sum.layers, sum.seconds * 1e3, 100 * sum.seconds / result.seconds, sum.least * 1e3});
  };
  for (const auto& [bound, sum] : sums) row(enum_name(bound), sum);
  row("all", whole);
  return table;
}

}  // namespace

report::Report roofline_report(const RooflineResult& result, const RooflineOptions& options) {
  report::Report page{.title = "Roofline: " + result.title, .created = report::timestamp()};
  double least = 0, operations = 0;
  const measure::Surroundings around{constant_bytes(result.parts)};
  for (const ProfiledPart& part : result.parts) {
    least += part.seconds * measure::roofline_point(part.work, part.seconds, result.peaks, around).share();
    operations += part.work.operations;
  }
  page.headlines = {{number("%.3g ms", result.seconds * 1e3), "all layers, each at its fastest"},
                    {number("%.0f %%", 100 * least / result.seconds), "of the bound of each layer, by time"},
                    {number("%.1f G/s", operations / result.seconds / 1e9), "all layers together"}};
  page.tables = {bounds_table(result), layers_table(result), math_table(result.peaks),
                 memory_table(result.peaks)};
  if (measure::is_disturbed(result.others))
    page.notes.push_back("While the layers were timed, the machine was " +
                         measure::busy_mark(*result.others) + ". They may be slower than alone.");
  page.notes.insert(page.notes.end(), result.notes.begin(), result.notes.end());
  page.charts = {chart_of(result)};
  page.settings = {{"Model", options.model},
                   {"Batch", std::to_string(options.batch)},
                   {"Threads", std::to_string(result.peaks.threads)},
                   {"Kernels", result.peaks.isa},
                   {"Times", "the fastest of at least " + std::to_string(options.runs)}};
  page.machine = report::machine_facts();
  return page;
}

}  // namespace ulp::app
