#include "ulp/app/distill/distill_report.h"

#include "ulp/app/report/report_parts.h"

namespace ulp::app {

namespace {

using report::Better;
using report::Cell;
using report::Chart;
using report::ChartKind;
using report::Table;

Chart curve_chart(const LearningCurve& curve) {
  Chart chart{.kind = ChartKind::line,
              .title = "Loss of " + curve.name,
              .caption = "Means of the steps between two points; parts before their weights.",
              .x = {.title = "step"},
              .y = {.title = "loss", .better = Better::lower},
              .series = {},
              .bands = {}};
  for (const auto& [name, values] : curve.losses)
    chart.series.push_back({.name = name, .x = curve.steps, .y = values});
  return chart;
}

Chart accuracy_chart(const DistillOutcome& outcome) {
  Chart chart{.kind = ChartKind::bars,
              .title = "Accuracy on test data",
              .caption = "",
              .x = {.title = "network"},
              .y = {.title = "accuracy", .unit = "%", .better = Better::higher},
              .series = {},
              .bands = {}};
  report::Series series{.name = "accuracy"};
  for (const DistillationState& state : outcome.states) {
    if (!state.accuracy) continue;
    series.labels.push_back(state.name);
    series.y.push_back(state.accuracy->percent());
  }
  chart.series.push_back(std::move(series));
  return chart;
}

const DistillationState* find(const DistillOutcome& outcome, const std::string& name) {
  for (const DistillationState& state : outcome.states) {
    if (state.name == name) return &state;
  }
  return nullptr;
}

}  // namespace

Table learners_table(const DistillOutcome& outcome) {
  Table table{
      .title = outcome.title,
      .caption = "On test data; latencies of fp32 engines, and of a teacher that is an engine as it is.",
      .columns = {{"model"},
                  {"network"},
                  {"accuracy", "%", Better::higher, 2},
                  {"loss", "nats", Better::lower, 4},
                  {"agrees with the teacher", "%", Better::none, 2},
                  {"parameters", "", Better::lower, 0},
                  {"weights", "KiB", Better::lower, 1},
                  {"batch 1", "ms", Better::lower},
                  {"batch 16", "ms", Better::lower}},
      .rows = {}};
  for (const DistillationState& state : outcome.states) {
    table.add_row({state.name, state.network, state.accuracy ? Cell(state.accuracy->percent()) : Cell(),
                   state.accuracy ? Cell(state.accuracy->loss) : Cell(),
                   state.agreement ? Cell(100 * *state.agreement) : Cell(),
                   state.parameters > 0 ? Cell(static_cast<double>(state.parameters)) : Cell(),
                   state.bytes > 0 ? Cell(static_cast<double>(state.bytes) / 1024) : Cell(),
                   milliseconds(state.one), milliseconds(state.sixteen)});
    mark_busy_time(table, state.one, "batch 1");
    mark_busy_time(table, state.sixteen, "batch 16");
  }
  return table;
}

report::Report distill_report(const DistillOutcome& outcome) {
  report::Report report{
      .title = "ulp distill: " + outcome.title, .subtitle = "", .created = report::timestamp()};
  const DistillationState *alone = find(outcome, "student alone"), *taught = find(outcome, "student taught"),
                          *teacher = find(outcome, "teacher");
  if (alone && taught && alone->accuracy && taught->accuracy)
    report.headlines.push_back({number("%+.2f", taught->accuracy->percent() - alone->accuracy->percent()),
                                "points of accuracy against the student alone"});
  if (teacher && taught && teacher->accuracy && taught->accuracy)
    report.headlines.push_back({number("%+.2f", taught->accuracy->percent() - teacher->accuracy->percent()),
                                "points against the teacher"});
  if (teacher && taught && teacher->parameters > 0 && taught->parameters > 0)
    report.headlines.push_back(
        {number("%.1fx", static_cast<double>(teacher->parameters) / static_cast<double>(taught->parameters)),
         "fewer parameters than the teacher"});
  report.tables.push_back(learners_table(outcome));
  if (!outcome.learns.empty())
    report.tables.push_back(
        lines_table("What the student learns from", "Loss, weight and place.", outcome.learns));
  report.charts.push_back(accuracy_chart(outcome));
  for (const LearningCurve& curve : outcome.curves) {
    if (curve.steps.size() > 1) report.charts.push_back(curve_chart(curve));
  }
  report.notes = outcome.notes;
  report.settings = outcome.settings;
  report.machine = report::machine_facts();
  return report;
}

}  // namespace ulp::app
