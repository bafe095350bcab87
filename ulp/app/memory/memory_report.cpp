#include <algorithm>

#include "ulp/app/memory/memory.h"
#include "ulp/app/report/report_parts.h"
#include "ulp/base/fields_json.h"
#include "ulp/report/format.h"
#include "ulp/report/machine.h"

namespace ulp::app {

namespace {

using memory::Category;

double mebibytes(int64_t bytes) {
  return static_cast<double>(bytes) / kMiB;
}

std::string size_text(const MemoryAnswer& answer) {
  const memory::RunSize size = answer.prediction.size;
  std::string text = "batch " + std::to_string(size.batch);
  if (answer.options.accumulate > 1) text += " x " + std::to_string(answer.options.accumulate);
  if (size.length > 0) text += ", length " + std::to_string(size.length);
  return text;
}

/// "checkpoint activations" of checkpoint_activations.
std::string spaced(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

/// A chart's series of one category over time.
report::Series series_of(const memory::Prediction& prediction, Category category) {
  report::Series series{.name = enum_name(category)};
  for (const memory::TimelinePoint& point : prediction.timeline) {
    series.x.push_back(static_cast<double>(point.time));
    series.y.push_back(mebibytes(point.bytes[static_cast<size_t>(category)]));
  }
  return series;
}

/// The phases as bands behind the lines, each named once a step.
std::vector<report::Band> bands_of(const memory::Prediction& prediction) {
  std::vector<report::Band> bands;
  const auto& points = prediction.timeline;
  for (size_t i = 0; i < points.size();) {
    size_t end = i;
    while (end < points.size() && points[end].phase == points[i].phase) ++end;
    report::Band band{.from = static_cast<double>(points[i].time), .label = enum_name(points[i].phase)};
    if (end < points.size()) band.to = static_cast<double>(points[end].time);
    const bool has_peak = std::any_of(
        points.begin() + static_cast<std::ptrdiff_t>(i), points.begin() + static_cast<std::ptrdiff_t>(end),
        [&](const auto& point) { return point.time == prediction.at_peak.time; });
    if (has_peak) band.detail = "the peak";
    band.warn = has_peak;
    bands.push_back(band);
    i = end;
  }
  return bands;
}

report::Chart timeline_chart(const memory::Prediction& prediction) {
  report::Chart chart{.kind = report::ChartKind::step,
                      .title = "Two steps of training",
                      .caption = "What lives when; the peak is at " + cause_of_peak(prediction) + ".",
                      .x = {.title = "allocations since the start"},
                      .y = {.title = "alive", .unit = "MiB", .minimum = 0},
                      .bands = bands_of(prediction)};
  report::Series total{.name = "all"};
  for (const memory::TimelinePoint& point : prediction.timeline) {
    total.x.push_back(static_cast<double>(point.time));
    total.y.push_back(mebibytes(point.total()));
  }
  chart.series.push_back(std::move(total));
  for (size_t i = 0; i < memory::kCategories; ++i) {
    if (prediction.largest[i] > 0) chart.series.push_back(series_of(prediction, static_cast<Category>(i)));
  }
  return chart;
}

report::Chart shares_chart(const memory::Prediction& prediction) {
  report::Chart chart{.kind = report::ChartKind::bars,
                      .title = "At the peak and at most",
                      .caption = "What each kind of memory takes at the peak, and at a moment of its own.",
                      .y = {.title = "alive", .unit = "MiB", .minimum = 0}};
  report::Series at_peak{.name = "at the peak"}, most{.name = "at most"};
  for (size_t i = 0; i < memory::kCategories; ++i) {
    if (prediction.largest[i] == 0) continue;
    const std::string name = enum_name(static_cast<Category>(i));
    at_peak.labels.push_back(name);
    at_peak.y.push_back(mebibytes(prediction.at_peak.bytes[i]));
    most.labels.push_back(name);
    most.y.push_back(mebibytes(prediction.largest[i]));
  }
  chart.series = {std::move(at_peak), std::move(most)};
  return chart;
}

report::Chart fits_chart(const MemoryAnswer& answer) {
  report::Chart chart{
      .kind = report::ChartKind::line,
      .title = "Largest batch by length",
      .caption = "What fits in " + report::format_bytes(static_cast<double>(*answer.budget)) + ".",
      .x = {.title = "length", .scale = report::Scale::log2},
      .y = {.title = "batch", .minimum = 0}};
  report::Series series{.name = answer.model};
  for (const Fit& fit : answer.fits) {
    series.x.push_back(static_cast<double>(fit.length));
    series.y.push_back(static_cast<double>(fit.batch));
  }
  chart.series.push_back(std::move(series));
  return chart;
}

std::vector<report::Fact> settings_of(const MemoryAnswer& answer) {
  const train::TrainOptions& options = answer.options;
  std::vector<report::Fact> facts = {{"network", answer.model},
                                     {"size", size_text(answer)},
                                     {"precision", options.precision.name()},
                                     {"optimizer", enum_name(options.optimizer)}};
  if (const auto masters = options.master_weights()) facts.push_back({"masters", enum_name(*masters)});
  if (options.moments != amp::MomentFormat::fp32) facts.push_back({"moments", enum_name(options.moments)});
  const nlohmann::json plan = changed_fields_to_json(answer.plan);
  for (const auto& [name, value] : plan.items())
    facts.push_back({spaced(name), value.is_string() ? value.get<std::string>() : value.dump()});
  facts.push_back({"small runs", std::to_string(answer.runs)});
  facts.push_back({"added for safety", number("%.3f %%", 100 * answer.slack)});
  return facts;
}

}  // namespace

std::string cause_of_peak(const memory::Prediction& prediction) {
  return describe(prediction.cause) + ", which asks for " +
         report::format_bytes(static_cast<double>(prediction.asked_bytes));
}

report::Table memory_table(const MemoryAnswer& answer) {
  const memory::Prediction& prediction = answer.prediction;
  report::Table table{
      .title = "Memory of training",
      .caption = answer.model + ", " + size_text(answer) + ", " + answer.options.precision.name() + ", " +
                 enum_name(answer.options.optimizer) + ": peak at " + cause_of_peak(prediction),
      .columns = {{"what"},
                  {"at the peak", "MiB", report::Better::none, 2},
                  {"share", "%", report::Better::none, 1},
                  {"at most", "MiB", report::Better::none, 2}}};
  const auto whole = static_cast<double>(std::max<int64_t>(prediction.peak_bytes, 1));
  for (size_t i = 0; i < memory::kCategories; ++i) {
    const int64_t bytes = prediction.at_peak.bytes[i];
    table.add_row({std::string(enum_name(static_cast<Category>(i))), mebibytes(bytes),
                   100 * static_cast<double>(bytes) / whole, mebibytes(prediction.largest[i])});
  }
  table.add_row(
      {std::string("all"), mebibytes(prediction.peak_bytes), 100.0, mebibytes(prediction.peak_bytes)});
  return table;
}

report::Table fit_table(const MemoryAnswer& answer) {
  report::Table table{.title = "What fits", .columns = {}};
  if (!answer.budget) return table;
  const bool text = answer.prediction.size.length > 0;
  table.caption = "The largest batch in " + report::format_bytes(static_cast<double>(*answer.budget));
  if (text) table.columns.push_back({"length"});
  table.columns.push_back({"largest batch"});
  table.columns.push_back({"its peak", "MiB", report::Better::none, 1});
  for (const Fit& fit : answer.fits) {
    std::vector<report::Cell> row;
    if (text) row.emplace_back(static_cast<double>(fit.length));
    row.emplace_back(static_cast<double>(fit.batch));
    row.push_back(fit.batch > 0 ? report::Cell(mebibytes(fit.peak_bytes)) : report::Cell());
    table.add_row(std::move(row));
  }
  return table;
}

report::Table proof_table(const MemoryAnswer& answer) {
  report::Table table{.title = "Predicted and measured",
                      .caption = "Two steps were run at this size.",
                      .columns = {{"predicted", "MiB", report::Better::none, 3},
                                  {"measured", "MiB", report::Better::none, 3},
                                  {"predicted above measured", "%", report::Better::none, 3}}};
  if (!answer.measured_bytes) return table;
  const auto predicted = static_cast<double>(answer.prediction.peak_bytes);
  const auto measured = static_cast<double>(*answer.measured_bytes);
  table.add_row({predicted / kMiB, measured / kMiB, 100 * (predicted / measured - 1)});
  return table;
}

report::Report memory_report(const MemoryAnswer& answer) {
  const memory::Prediction& prediction = answer.prediction;
  report::Report report{.title = "Memory of training " + answer.model,
                        .subtitle = size_text(answer) + ", " + answer.options.precision.name() + ", " +
                                    enum_name(answer.options.optimizer),
                        .created = report::timestamp(),
                        .settings = settings_of(answer),
                        .machine = report::machine_facts()};
  report.headlines.push_back(
      {report::format_bytes(static_cast<double>(prediction.peak_bytes)), "predicted peak of live tensors"});
  if (answer.measured_bytes)
    report.headlines.push_back(
        {report::format_bytes(static_cast<double>(*answer.measured_bytes)), "measured peak"});
  report.tables.push_back(memory_table(answer));
  report.charts.push_back(timeline_chart(prediction));
  report.charts.push_back(shares_chart(prediction));
  if (answer.budget) report.tables.push_back(fit_table(answer));
  if (answer.fits.size() > 1) report.charts.push_back(fits_chart(answer));
  if (answer.measured_bytes) report.tables.push_back(proof_table(answer));
  report.notes = {
      "Counted are tensors as LibTorch's allocators report them. Programs, libraries, the scratch memory of "
      "oneDNN and what allocators keep in reserve come on top."};
  return report;
}

}  // namespace ulp::app
