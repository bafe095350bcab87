#include "ulp/train/watch_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "ulp/report/format.h"

namespace ulp::train {

namespace {

using amp::FormatRange;
using amp::WatchSummary;
using kernels::ExponentStats;
using report::Band;
using report::Cell;
using report::Chart;
using report::ChartKind;
using report::Table;

constexpr double kPercent = 100;
constexpr size_t kMostMarks = 200;  // skipped steps marked in a chart

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, share > 0 && share < 1e-4 ? "%.0e %%" : "%.3g %%", kPercent * share);
  return text;
}

/// "12 % -> 0.3 %", or one of them when nothing is scaled.
std::string change(double before, double after, bool scaled) {
  return scaled ? percent(before) + " \u2192 " + percent(after) : percent(before);
}

/// The binades (2^low, 2^high] that hold all but a ten-thousandth of the values at each end.
struct Extent {
  int low, high;
};
Extent extent(const ExponentStats& stats) {
  const auto count = [&](int i) {
    const auto& b = stats.binades[static_cast<size_t>(i)];
    return static_cast<double>(b.lower + b.upper);
  };
  const double few = static_cast<double>(stats.nonzero()) * 1e-4;
  int first = 0, last = ExponentStats::kBinades - 1;
  double sum = 0;
  while (first < last && (sum += count(first)) <= few) ++first;
  sum = 0;
  while (last > first && (sum += count(last)) <= few) --last;
  return {ExponentStats::kLowest + first, ExponentStats::kLowest + last + 1};
}

report::Series histogram(const std::string& name, const ExponentStats& stats, Extent shown) {
  report::Series series{.name = name};
  const double total = std::max(1.0, static_cast<double>(stats.nonzero()));
  for (int e = shown.low; e < shown.high; ++e) {
    const int i = e - ExponentStats::kLowest;
    double count = 0;
    if (i >= 0 && i < ExponentStats::kBinades) {
      const auto& b = stats.binades[static_cast<size_t>(i)];
      count = static_cast<double>(b.lower + b.upper);
    }
    series.x.push_back(std::ldexp(std::sqrt(2.0), e));  // the middle, as the axis shows it
    series.y.push_back(kPercent * count / total);
  }
  return series;
}

std::vector<Band> bands(const FormatRange& range, const amp::Shares& before, const amp::Shares& after,
                        bool scaled) {
  const std::string name(range.format().name);
  const auto two = [](int exponent) { return std::ldexp(1.0, exponent); };
  const auto kept = [](const amp::Shares& s) { return 1 - s.underflow - s.subnormal - s.overflow; };
  return {{.to = two(range.zero_exponent()),
           .label = "become zero",
           .detail = change(before.underflow, after.underflow, scaled),
           .warn = true},
          {.from = two(range.zero_exponent()),
           .to = two(range.normal_exponent()),
           .label = name + " subnormal",
           .detail = change(before.subnormal, after.subnormal, scaled)},
          {.from = two(range.normal_exponent()),
           .to = two(range.top_exponent() + 1),
           .label = name + " normal",
           .detail = change(kept(before), kept(after), scaled)},
          {.from = two(range.top_exponent() + 1),
           .label = "overflow",
           .detail = change(before.overflow, after.overflow, scaled),
           .warn = true}};
}

/// The loss scale over the steps, its changes only, and the advice of each sample; skipped steps marked.
Chart scale_chart(const WatchSummary& summary) {
  report::Series used{.name = "loss scale"}, advised{.name = "advised scale"};
  for (size_t i = 0; i < summary.steps.size(); ++i) {
    const auto& s = summary.steps[i];
    const bool last = i + 1 == summary.steps.size();
    if (i > 0 && !last && s.scale == used.y.back()) continue;
    used.x.push_back(static_cast<double>(s.step));
    used.y.push_back(s.scale);
  }
  for (const auto& s : summary.samples) {
    advised.x.push_back(static_cast<double>(s.step));
    advised.y.push_back(s.advised_scale);
  }
  Chart chart{.kind = ChartKind::step,
              .title = "Loss scale",
              .caption = std::to_string(summary.skipped.size()) + " of " +
                         std::to_string(summary.steps.size()) + " steps were skipped" +
                         (summary.skipped.empty() ? "." : "; they are marked.") +
                         " The advised scale leaves the margin above the largest gradient seen so far.",
              .x = {.title = "step"},
              .y = {.title = "loss scale", .scale = report::Scale::log2},
              .series = {used, advised}};
  for (size_t i = 0; i < std::min(kMostMarks, summary.skipped.size()); ++i) {
    const auto step = static_cast<double>(summary.skipped[i].step);
    chart.bands.push_back({.from = step, .to = step + 1, .warn = true});
  }
  return chart;
}

Chart underflow_chart(const WatchSummary& summary) {
  report::Series before{.name = "without scale"}, after{.name = "with loss scale"};
  for (const auto& s : summary.samples) {
    for (report::Series* series : {&before, &after}) series->x.push_back(static_cast<double>(s.step));
    before.y.push_back(kPercent * s.before.underflow);
    after.y.push_back(kPercent * s.after.underflow);
  }
  const std::string name(summary.range.format().name);
  return {.kind = ChartKind::line,
          .title = "Gradients that " + name + " turns into zero",
          .caption = "Share of the gradients' non-zero values in each sampled step.",
          .x = {.title = "step"},
          .y = {.title = "share", .unit = "%", .better = report::Better::lower, .minimum = 0},
          .series = {before, after}};
}

/// Indices by descending loss of values; the order of equals stays.
template <typename Item, typename Lost>
std::vector<size_t> worst_first(const std::vector<Item>& items, size_t rows, const Lost& lost) {
  std::vector<double> score(items.size());
  for (size_t i = 0; i < items.size(); ++i) score[i] = lost(items[i]);
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score[a] > score[b]; });
  order.resize(std::min(rows, order.size()));
  return order;
}

double lost(const amp::Shares& shares) {
  return shares.underflow + shares.overflow;
}

/// Finite numbers only: an infinite headroom is one that nothing was measured for.
Cell finite(double value) {
  return std::isfinite(value) ? Cell(value) : Cell();
}

Table gradients_table(const WatchSummary& summary, size_t rows) {
  const FormatRange& range = summary.range;
  const int exponent = amp::scale_exponent(summary.last_scale());
  Table table{
      .title = "Gradients in " + std::string(range.format().name),
      .caption = "Over all sampled steps, worst first; scaled means times the last loss scale, " +
                 report::format_scale(summary.last_scale()) +
                 ". Shares are of non-zero values. Headroom is what is left below the format's largest "
                 "number, in powers of two.",
      .columns = {{"gradient"},
                  {"largest"},
                  {"exact zeros", "%"},
                  {"to zero, unscaled", "%"},
                  {"to zero, scaled", "%"},
                  {"overflow, scaled", "%"},
                  {"headroom, scaled", "binades", report::Better::none, 1},
                  {"not finite"}}};
  const auto by_loss = [&](const amp::GradientStats& g) { return lost(range.shares(g.stats, exponent)); };
  for (const size_t i : worst_first(summary.gradients, rows, by_loss)) {
    const auto& [name, stats] = summary.gradients[i];
    if (stats.total() == 0) continue;
    const amp::Shares before = range.shares(stats), after = range.shares(stats, exponent);
    table.add_row({name, stats.amax,
                   kPercent * static_cast<double>(stats.zeros) / static_cast<double>(stats.total()),
                   kPercent * before.underflow, kPercent * after.underflow, kPercent * after.overflow,
                   finite(range.headroom(stats, exponent)), static_cast<double>(stats.nonfinite())});
  }
  return table;
}

Table ops_table(const WatchSummary& summary, amp::Pass pass, size_t rows) {
  const FormatRange& range = summary.range;
  const bool backward = pass == amp::Pass::backward;
  const int exponent = backward ? amp::scale_exponent(summary.last_scale()) : 0;
  std::vector<amp::OpStats> ops;
  for (const amp::OpStats& op : summary.ops) {
    if (op.place.pass == pass) ops.push_back(op);
  }
  const std::string name(range.format().name);
  Table table{.title = backward ? "Backward ops in " + name : "Forward ops in " + name,
              .caption = backward
                             ? "What each op of the backward pass made, as scaled by the last loss scale, "
                               "worst first."
                             : "What each op of the forward pass made, worst first.",
              .columns = {{"op"},
                          {"module"},
                          {"dtype"},
                          {"largest"},
                          {"to zero", "%"},
                          {"subnormal", "%"},
                          {"overflow", "%"},
                          {"headroom", "binades", report::Better::none, 1},
                          {"not finite"}}};
  const auto by_loss = [&](const amp::OpStats& op) { return lost(range.shares(op.stats, exponent)); };
  for (const size_t i : worst_first(ops, rows, by_loss)) {
    const amp::OpStats& op = ops[i];
    const amp::Shares shares = range.shares(op.stats, exponent);
    std::string what = op.place.op;
    if (op.place.output > 0) what += ", output " + std::to_string(op.place.output);
    table.add_row({what, op.place.path, c10::toString(op.dtype), std::ldexp(op.stats.amax, exponent),
                   kPercent * shares.underflow, kPercent * shares.subnormal, kPercent * shares.overflow,
                   finite(range.headroom(op.stats, exponent)), static_cast<double>(op.stats.nonfinite())});
  }
  return table;
}

double fp8_loss(const amp::Fp8TensorStats& tensor) {
  return tensor.saturated_share() + tensor.flushed_share();
}

Table fp8_table(const WatchSummary& summary, size_t rows) {
  Table table{
      .title = "Tensors of fp8 layers",
      .caption =
          "Over all sampled steps, worst first. Shares are of non-zero values; largest and scale are the "
          "last sampled step's. Of many scales the smallest is shown.",
      .columns = {{"layer"},
                  {"role"},
                  {"format"},
                  {"largest"},
                  {"scale"},
                  {"saturated", "%"},
                  {"flushed to zero", "%"},
                  {"not finite"}}};
  for (const size_t i : worst_first(summary.fp8, rows, fp8_loss)) {
    const amp::Fp8TensorStats& tensor = summary.fp8[i];
    table.add_row({tensor.layer, enum_name(tensor.role), tensor.format, tensor.history.back().amax,
                   tensor.history.back().scale, kPercent * tensor.saturated_share(),
                   kPercent * tensor.flushed_share(), static_cast<double>(tensor.nonfinite)});
  }
  return table;
}

/// How the scales of the worst tensors moved.
Chart fp8_scale_chart(const WatchSummary& summary) {
  constexpr size_t kLines = 8;
  Chart chart{.kind = ChartKind::step,
              .title = "Scales of fp8 tensors",
              .caption = "Of the tensors that lose most, in each sampled step.",
              .x = {.title = "step"},
              .y = {.title = "scale", .scale = report::Scale::log2}};
  for (const size_t i : worst_first(summary.fp8, kLines, fp8_loss)) {
    const amp::Fp8TensorStats& tensor = summary.fp8[i];
    report::Series line{.name = tensor.layer + ' ' + enum_name(tensor.role)};
    for (const auto& point : tensor.history) {
      if (!(point.scale > 0)) continue;
      line.x.push_back(static_cast<double>(point.step));
      line.y.push_back(point.scale);
    }
    if (!line.x.empty()) chart.series.push_back(std::move(line));
  }
  return chart;
}

Table skipped_table(const WatchSummary& summary, size_t rows) {
  Table table{.title = "Skipped steps", .columns = {{"step"}, {"loss scale"}, {"cause"}}};
  for (size_t i = 0; i < std::min(rows, summary.skipped.size()); ++i) {
    const auto& s = summary.skipped[i];
    table.add_row({static_cast<double>(s.step), report::format_scale(s.scale), s.cause});
  }
  if (summary.skipped.size() > rows)
    table.caption =
        "The first " + std::to_string(rows) + " of " + std::to_string(summary.skipped.size()) + ".";
  return table;
}

Table nonfinite_table(const WatchSummary& summary, size_t rows) {
  Table table{.title = "First values that were not finite",
              .caption = "One a sampled step: the first op that made such a value.",
              .columns = {{"step"}, {"where"}}};
  for (size_t i = 0; i < std::min(rows, summary.nonfinite.size()); ++i) {
    table.add_row({static_cast<double>(summary.nonfinite[i].step), summary.nonfinite[i].describe()});
  }
  return table;
}

}  // namespace

Chart gradient_chart(const WatchSummary& summary) {
  const FormatRange& range = summary.range;
  const ExponentStats& all = summary.all_gradients;
  const double scale = summary.last_scale();
  const int exponent = amp::scale_exponent(scale);
  const Extent own = extent(all);
  const Extent shown{std::min({own.low, own.low + exponent, range.zero_exponent() - 6}),
                     std::max({own.high, own.high + exponent, range.top_exponent() + 6})};
  const std::string name(range.format().name);
  Chart chart{
      .kind = ChartKind::histogram,
      .title = "Gradients and the range of " + name,
      .caption = "Share of the gradients' non-zero values in each power of two, over " +
                 std::to_string(summary.samples.size()) + " sampled steps. " +
                 percent(static_cast<double>(all.zeros) / std::max(1.0, static_cast<double>(all.total()))) +
                 " of all values are exactly zero and not shown.",
      .x = {.title = "magnitude", .scale = report::Scale::log2},
      .y = {.title = "share of non-zero values", .unit = "%"}};
  chart.series.push_back(histogram("without scale", all, shown));
  if (exponent != 0) {
    chart.series.push_back(
        histogram("with loss scale " + report::format_scale(scale), all.scaled(exponent), shown));
  }
  chart.bands = bands(range, range.shares(all), range.shares(all, exponent), exponent != 0);
  return chart;
}

WatchReport watch_report(const WatchSummary& summary, size_t rows) {
  WatchReport out;
  if (!summary.samples.empty()) {
    out.charts = {gradient_chart(summary), scale_chart(summary), underflow_chart(summary)};
    const auto& last = summary.samples.back();
    out.notes.push_back("The advised loss scale for " + std::string(summary.range.format().name) + " is " +
                        report::format_scale(last.advised_scale) + "; the run ended with " +
                        report::format_scale(summary.last_scale()) + ".");
  }
  if (!summary.fp8.empty()) out.charts.push_back(fp8_scale_chart(summary));
  std::vector<Table> tables = {skipped_table(summary, rows),
                               nonfinite_table(summary, rows),
                               fp8_table(summary, rows),
                               gradients_table(summary, rows),
                               ops_table(summary, amp::Pass::forward, rows),
                               ops_table(summary, amp::Pass::backward, rows)};
  for (Table& table : tables) {
    if (!table.rows.empty()) out.tables.push_back(std::move(table));
  }
  return out;
}

}  // namespace ulp::train
