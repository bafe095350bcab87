#include "ulp/app/prune/prune_report.h"

#include "ulp/app/report/report_parts.h"

namespace ulp::app {

namespace {

using report::Better;
using report::Cell;
using report::Chart;
using report::ChartKind;
using report::Table;

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 1 : static_cast<double>(part) / static_cast<double>(whole);
}

Chart parameters_chart(const PruneOutcome& outcome) {
  Chart chart{.kind = ChartKind::bars,
              .title = "What is left of each layer",
              .caption = "In the model's order.",
              .x = {.title = "parameter"},
              .y = {.title = "kept", .unit = "%", .minimum = 0, .maximum = 100},
              .series = {},
              .bands = {}};
  report::Series series{.name = "kept"};
  for (const PrunedParameter& one : outcome.parameters) {
    series.labels.push_back(one.name.ends_with(".weight") ? one.name.substr(0, one.name.size() - 7)
                                                          : one.name);
    series.y.push_back(100 * share(one.kept, one.elements));
  }
  chart.series.push_back(std::move(series));
  return chart;
}

Chart sweep_chart(const PruneOutcome& outcome) {
  Chart chart{.kind = ChartKind::line,
              .title = "Accuracy against what is kept",
              .caption = "Pruned at once, without training on.",
              .x = {.title = "kept", .unit = "%"},
              .y = {.title = "accuracy", .unit = "%", .better = Better::higher},
              .series = {},
              .bands = {}};
  report::Series series{.name = outcome.method};
  for (const SweepPoint& point : outcome.sweep) {
    if (!point.accuracy) continue;
    series.x.push_back(100 * point.kept);
    series.y.push_back(point.accuracy->percent());
  }
  chart.series.push_back(std::move(series));
  return chart;
}

}  // namespace

Table states_table(const PruneOutcome& outcome) {
  Table table{.title = outcome.model + ", " + outcome.method,
              .caption = "Engines in fp32 on test data; latencies of a batch.",
              .columns = {{"model"},
                          {"accuracy", "%", Better::higher, 2},
                          {"loss", "nats", Better::lower, 4},
                          {"parameters", "", Better::lower, 0},
                          {"not zero", "%", Better::none, 1},
                          {"MACs", "M", Better::lower, 3},
                          {"weights", "KiB", Better::lower, 1},
                          {"batch 1", "ms", Better::lower},
                          {"batch 16", "ms", Better::lower}},
              .rows = {}};
  for (const PrunedState& state : outcome.states) {
    table.add_row({state.name, state.accuracy ? Cell(state.accuracy->percent()) : Cell(),
                   state.accuracy ? Cell(state.accuracy->loss) : Cell(),
                   static_cast<double>(state.parameters), 100 * share(state.nonzero, state.parameters),
                   static_cast<double>(state.macs) / 1e6, static_cast<double>(state.bytes) / 1024,
                   milliseconds(state.one), milliseconds(state.sixteen)});
    mark_busy_time(table, state.one, "batch 1");
    mark_busy_time(table, state.sixteen, "batch 16");
  }
  return table;
}

Table parameters_table(const PruneOutcome& outcome) {
  Table table{.title = "What is left of each parameter",
              .caption = "In the model's order.",
              .columns = {{"parameter"},
                          {"elements", "", Better::none, 0},
                          {"kept", "", Better::none, 0},
                          {"kept", "%", Better::none, 1}},
              .rows = {}};
  for (const PrunedParameter& one : outcome.parameters) {
    table.add_row({one.name, static_cast<double>(one.elements), static_cast<double>(one.kept),
                   100 * share(one.kept, one.elements)});
  }
  return table;
}

Table sweep_table(const PruneOutcome& outcome) {
  Table table{.title = "Accuracy against what is kept",
              .caption = "Pruned at once, without training on.",
              .columns = {{"asked", "%", Better::none, 1},
                          {"kept", "%", Better::none, 1},
                          {"accuracy", "%", Better::none, 2},
                          {"loss", "nats", Better::none, 4}},
              .rows = {}};
  for (const SweepPoint& point : outcome.sweep) {
    table.add_row({100 * point.asked, 100 * point.kept,
                   point.accuracy ? Cell(point.accuracy->percent()) : Cell(),
                   point.accuracy ? Cell(point.accuracy->loss) : Cell()});
  }
  return table;
}

Table rounds_table(const PruneOutcome& outcome) {
  Table table{.title = "Rounds of lottery tickets",
              .caption = "Each was trained, and pruned before the next; accuracy of LibTorch on test data.",
              .columns = {{"round", "", Better::none, 0},
                          {"kept", "%", Better::none, 2},
                          {"accuracy", "%", Better::higher, 2}},
              .rows = {}};
  for (const train::TicketRound& round : outcome.rounds)
    table.add_row({static_cast<double>(round.round), 100 * round.kept, round.score});
  return table;
}

report::Report prune_report(const PruneOutcome& outcome) {
  report::Report report{.title = "ulp prune: " + outcome.model,
                        .subtitle = "Method " + outcome.method,
                        .created = report::timestamp()};
  if (outcome.states.size() > 1) {
    const PrunedState &dense = outcome.states.front(), &last = outcome.states.back();
    if (dense.accuracy && last.accuracy) {
      report.headlines.push_back({number("%+.2f", last.accuracy->percent() - dense.accuracy->percent()),
                                  "points of accuracy against the dense network"});
    }
    report.headlines.push_back(
        {number("%.1f %%", 100 * share(last.nonzero, dense.nonzero)), "of the weights are left"});
    if (last.macs != dense.macs)
      report.headlines.push_back(
          {number("%.1f %%", 100 * share(last.macs, dense.macs)), "of the multiplications are left"});
    const bool quiet = dense.one && last.one && !measure::is_disturbed(dense.one->others) &&
                       !measure::is_disturbed(last.one->others);
    if (quiet)
      report.headlines.push_back(
          {number("%.2fx", dense.one->median / last.one->median), "as fast at batch 1"});
  }
  report.tables.push_back(states_table(outcome));
  if (!outcome.rounds.empty()) report.tables.push_back(rounds_table(outcome));
  if (!outcome.sweep.empty()) {
    report.tables.push_back(sweep_table(outcome));
    report.charts.push_back(sweep_chart(outcome));
  }
  if (!outcome.parameters.empty()) {
    report.tables.push_back(parameters_table(outcome));
    report.charts.push_back(parameters_chart(outcome));
  }
  if (!outcome.reasons.empty()) {
    report.tables.push_back(lines_table("Not pruned", "Each with the reason.", outcome.reasons));
  }
  report.notes = outcome.notes;
  if (outcome.interrupted)
    report.notes.emplace_back("Training was interrupted; the figures are of what was there.");
  report.settings = outcome.settings;
  report.machine = report::machine_facts();
  return report;
}

}  // namespace ulp::app
