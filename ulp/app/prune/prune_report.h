// Reports what pruning did to a model, as tables and charts: for the terminal, report.json and report.html.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/measure/measure.h"
#include "ulp/report/report.h"
#include "ulp/train/evaluate.h"
#include "ulp/train/tickets.h"

namespace ulp::app {

/// One state of a network: dense, pruned, trained on.
struct PrunedState {
  std::string name;
  std::optional<train::Accuracy> accuracy = {};           ///< of the fp32 engine, on test data
  int64_t parameters = 0;                                 ///< elements
  int64_t nonzero = 0;                                    ///< of those
  int64_t macs = 0;                                       ///< for one sample
  int64_t bytes = 0;                                      ///< of the engine's weights
  std::optional<measure::Timing> one = {}, sixteen = {};  ///< latency at these batch sizes
};

/// The remains of one parameter.
struct PrunedParameter {
  std::string name;
  int64_t kept = 0, elements = 0;
};

/// A point of the curve of accuracy against what is kept.
struct SweepPoint {
  double asked = 0;  ///< share that was to be kept
  double kept = 0;   ///< of the weights, or of what the recipe measures
  std::optional<train::Accuracy> accuracy = {};
};

/// Everything that one run of `ulp prune` found out.
struct PruneOutcome {
  std::string model, method;
  std::vector<PrunedState> states;  ///< the dense network first
  std::vector<PrunedParameter> parameters;
  std::vector<SweepPoint> sweep;
  std::vector<train::TicketRound> rounds = {};  ///< of lottery tickets; scores are percents of right answers
  std::vector<std::string> reasons;             ///< what was not pruned, and why
  std::vector<std::string> notes = {};          ///< what cuts cost that no table says
  bool interrupted = false;                     ///< training was
  std::vector<report::Fact> settings;
};

/// Accuracy, size and latency of each state.
ULP_API report::Table states_table(const PruneOutcome& outcome);
/// Lists what was kept of each parameter.
ULP_API report::Table parameters_table(const PruneOutcome& outcome);
ULP_API report::Table sweep_table(const PruneOutcome& outcome);
/// Lists what each round of training kept and came to.
ULP_API report::Table rounds_table(const PruneOutcome& outcome);

/// All of them, charts of layers and sweep, and the reasons.
ULP_API report::Report prune_report(const PruneOutcome& outcome);

}  // namespace ulp::app
