// What a run of pruning measures of its networks.
#pragma once

#include <string>
#include <vector>

#include "ulp/app/prune/prune.h"
#include "ulp/graph/graph_module.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::app {

/// Fills in an outcome, state by state. Throws Interrupted on Ctrl-C.
class PruneFigures {
 public:
  /// Both must outlive it.
  PruneFigures(const PruneRequest& request, PruneOutcome& outcome) : request_(request), outcome_(outcome) {}

  /// Lowers the network as it is now: accuracy, sizes.
  void add_state(const std::string& name, graph::GraphModule& model);
  /// Accuracy of the network's engine; nothing without test data.
  std::optional<train::Accuracy> accuracy(const std::string& title, const runtime::Plan& plan) const;
  /// What is left of each parameter.
  void add_parameters(const graph::Graph& before, const graph::Graph& after);
  /// The engines of the first state and the last, in turn.
  void measure_latency();

 private:
  void show(const Stage& stage) const;

  const PruneRequest& request_;
  PruneOutcome& outcome_;
  std::vector<runtime::Plan> plans_;  // of the states
};

}  // namespace ulp::app
