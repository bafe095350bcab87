#include "ulp/app/quantize/quantize_report.h"

#include <cmath>

#include "ulp/app/report/report_parts.h"

namespace ulp::app {

namespace {

using report::Better;
using report::Cell;
using report::Chart;
using report::ChartKind;
using report::Table;

constexpr double kKiB = 1024;
constexpr size_t kMostBars = 40;

Cell percent(const std::optional<train::Accuracy>& accuracy) {
  return accuracy ? Cell(accuracy->percent()) : Cell();
}

/// An exact value has no noise; its cell stays empty.
Cell decibels(double sqnr_db) {
  return std::isfinite(sqnr_db) ? Cell(sqnr_db) : Cell();
}

Chart comparison_chart(const std::vector<quant::ValueComparison>& comparison) {
  Chart chart{.kind = ChartKind::line,
              .title = "Noise on the way through the network",
              .caption =
                  "Each point is an activation, in order of execution; errors of earlier layers are "
                  "in those of later ones.",
              .x = {.title = "activation"},
              .y = {.title = "SQNR", .unit = "dB", .better = Better::higher},
              .series = {},
              .bands = {}};
  report::Series series{.name = "SQNR"};
  for (size_t i = 0; i < comparison.size(); ++i) {
    if (!std::isfinite(comparison[i].error.sqnr_db)) continue;
    series.x.push_back(static_cast<double>(i + 1));
    series.y.push_back(comparison[i].error.sqnr_db);
  }
  chart.series.push_back(std::move(series));
  return chart;
}

Chart sensitivity_chart(const quant::Sensitivity& sensitivity) {
  Chart chart{.kind = ChartKind::bars,
              .title = "Sensitivity",
              .caption = "SQNR of the model's result with one layer quantized alone; the worst come first.",
              .x = {.title = "layer"},
              .y = {.title = "SQNR of the result", .unit = "dB", .better = Better::higher},
              .series = {},
              .bands = {}};
  report::Series series{.name = "SQNR"};
  for (const quant::LayerSensitivity& layer : sensitivity.layers) {
    if (series.y.size() == kMostBars || !std::isfinite(layer.error.sqnr_db)) continue;
    series.labels.push_back(layer.layer);
    series.y.push_back(layer.error.sqnr_db);
  }
  chart.series.push_back(std::move(series));
  return chart;
}

}  // namespace

Table result_table(const QuantizeOutcome& outcome) {
  Table table{.title = outcome.model + ", " + outcome.mode,
              .caption = "Engines on test data.",
              .columns = {{"model"},
                          {"accuracy", "%", Better::higher, 2},
                          {"loss", "nats", Better::lower, 4},
                          {"weights", "KiB", Better::lower, 1},
                          {"size against float", "x", Better::lower, 3}},
              .rows = {}};
  const auto row = [&](const char* name, const std::optional<train::Accuracy>& accuracy, int64_t bytes) {
    table.add_row({name, percent(accuracy), accuracy ? Cell(accuracy->loss) : Cell(),
                   static_cast<double>(bytes) / kKiB,
                   static_cast<double>(bytes) / static_cast<double>(outcome.float_bytes)});
  };
  row("float", outcome.float_accuracy, outcome.float_bytes);
  row("quantized", outcome.accuracy, outcome.bytes);
  return table;
}

Table comparison_table(const std::vector<quant::ValueComparison>& comparison) {
  Table table{.title = "Float against quantized activations",
              .caption = "In order of execution, errors of earlier layers included.",
              .columns = {{"layer"},
                          {"op"},
                          {"value"},
                          {"codes"},
                          {"SQNR", "dB", Better::none, 1},
                          {"mean squared error"},
                          {"cosine", "", Better::none, 6},
                          {"largest error"}},
              .rows = {}};
  for (const quant::ValueComparison& row : comparison) {
    table.add_row({row.layer, row.op, row.value, row.quantized ? "yes" : "no", decibels(row.error.sqnr_db),
                   row.error.mse, row.error.cosine, row.error.max_abs});
  }
  return table;
}

Table sensitivity_table(const quant::Sensitivity& sensitivity) {
  const bool scored = sensitivity.float_score.has_value();
  Table table{.title = "Each layer quantized alone",
              .caption = "Errors are those of the model's result; the worst layer comes first.",
              .columns = {{"layer"}, {"value"}, {"SQNR", "dB", Better::none, 1}, {"largest error"}},
              .rows = {}};
  if (scored) {
    table.columns.push_back({"accuracy", "%", Better::none, 2});
    table.columns.push_back({"against float", "points", Better::none, 2});
  }
  for (const quant::LayerSensitivity& layer : sensitivity.layers) {
    std::vector<Cell> cells = {layer.layer, layer.value, decibels(layer.error.sqnr_db), layer.error.max_abs};
    if (scored) {
      cells.emplace_back(layer.score.value());
      cells.emplace_back(*layer.score - *sensitivity.float_score);
    }
    table.add_row(std::move(cells));
  }
  return table;
}

report::Report quantize_report(const QuantizeOutcome& outcome) {
  report::Report report{.title = "ulp quantize: " + outcome.model,
                        .subtitle = "Mode " + outcome.mode,
                        .created = report::timestamp()};
  const double ratio = static_cast<double>(outcome.bytes) / static_cast<double>(outcome.float_bytes);
  if (outcome.accuracy && outcome.float_accuracy) {
    report.headlines.push_back(
        {number("%+.2f", outcome.accuracy->percent() - outcome.float_accuracy->percent()),
         "points of accuracy against float"});
  }
  report.headlines.push_back({number("%.0f %%", 100 * ratio), "size of the weights against float"});
  report.tables.push_back(result_table(outcome));
  if (!outcome.comparison.empty()) {
    report.tables.push_back(comparison_table(outcome.comparison));
    report.charts.push_back(comparison_chart(outcome.comparison));
  }
  if (outcome.sensitivity) {
    report.tables.push_back(sensitivity_table(*outcome.sensitivity));
    report.charts.push_back(sensitivity_chart(*outcome.sensitivity));
  }
  if (outcome.search) {
    report.tables.push_back(measured_table(*outcome.search));
    report.tables.push_back(bits_table(*outcome.search));
    report.charts.push_back(front_chart(*outcome.search));
    if (outcome.search->interrupted)
      report.notes.emplace_back("The search was interrupted; this is the best result until then.");
  }
  report.tables.push_back(lines_table("Quantized", "One step of the engine a line.", outcome.quantized));
  if (!outcome.reasons.empty()) {
    report.tables.push_back(
        lines_table("Not folded, fused or quantized", "Each with the reason.", outcome.reasons));
  }
  report.settings = outcome.settings;
  report.machine = report::machine_facts();
  return report;
}

}  // namespace ulp::app
