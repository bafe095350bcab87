// Plans of stages made by hand, without measuring.
#pragma once

#include "ulp/distributed/stage_plan.h"

namespace ulp::test {

inline std::vector<const graph::Node*> calls_of(const graph::Graph& graph) {
  std::vector<const graph::Node*> calls;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == graph::Node::Kind::call || node->kind() == graph::Node::Kind::module)
      calls.push_back(node.get());
  }
  return calls;
}

/// Calls of the graph shared out evenly.
inline distributed::StagePlan even_stages(const graph::Graph& graph, size_t stages) {
  const auto calls = calls_of(graph);
  distributed::StagePlan plan;
  for (size_t s = 0; s < stages; ++s)
    plan.stages.push_back({calls[calls.size() * s / stages], calls[calls.size() * (s + 1) / stages - 1]});
  return plan;
}

}  // namespace ulp::test
