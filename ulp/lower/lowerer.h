// A prepared graph -> a plan, or the list of what has no lowering.
#pragma once

#include <string>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/lower/lower.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::lowering {

/// A node that has no lowering as it stands.
struct Refusal {
  const graph::Node* node;
  std::string reason;
  /// Where `node` is the output: who makes the result that cannot leave.
  const graph::Node* maker = nullptr;
};

/// What became of a graph: a plan where nothing was refused.
struct Lowered {
  runtime::Plan plan;
  std::vector<Refusal> refusals;
};

/// `report` receives what became one step (changes) and what follows a step and could not become part of it (near
/// misses).
Lowered lower_prepared(graph::Graph& graph, const LowerOptions& options, graph::PassReport& report);

/// Throws ulp::Error (unsupported_op) that names each kind of refusal once, with its first module.
[[noreturn]] void fail_with(const std::vector<Refusal>& refusals);

}  // namespace ulp::lowering
