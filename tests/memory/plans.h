// Every kind of plan for a module, each of which must give the bits of the module without a plan.
#pragma once

#include "memory/step.h"
#include "ulp/memory/checkpoint/checkpoint.h"

namespace ulp::test {

/// Segments of seven calls that hold segments of two and three.
inline memory::CheckpointPlan nested(const graph::Graph& graph) {
  memory::CheckpointPlan plan = memory::plan_every(graph, 7);
  std::vector<const graph::Node*> calls;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == graph::Node::Kind::call || node->kind() == graph::Node::Kind::module)
      calls.push_back(node.get());
  }
  for (size_t i = plan.segments.size(); i-- > 0;) {
    plan.segments.push_back({calls[7 * i], calls[7 * i + 1]});
    plan.segments.push_back({calls[7 * i + 3], calls[7 * i + 5]});
    plan.segments.push_back({calls[7 * i + 4], calls[7 * i + 4]});
  }
  return plan;
}

inline void expect_the_same_step(graph::GraphModule& module, const std::vector<torch::Tensor>& inputs,
                                 const std::string& name) {
  for (const bool bf16 : {false, true}) {
    const std::string where = name + (bf16 ? " in bf16" : " in fp32");
    memory::checkpoint(module, {});
    const auto expected = step(module, inputs, bf16);
    expect_same(expected, step(module, inputs, bf16), where + ", again without a plan");
    const std::vector<std::pair<std::string, memory::CheckpointPlan>> plans = {
        {"sqrt", memory::plan_sqrt(module.graph())},
        {"every call", memory::plan_every(module.graph(), 1)},
        {"every 5", memory::plan_every(module.graph(), 5)},
        {"nested", nested(module.graph())}};
    for (const auto& [plan_name, plan] : plans) {
      memory::checkpoint(module, plan);
      expect_same(expected, step(module, inputs, bf16), where + ", " + plan_name);
    }
  }
}

}  // namespace ulp::test
