#include "ulp/graph/passes/rewrite.h"

namespace ulp::graph {
namespace {

/// The stored matrix that the argument is the transpose of, or null.
const Node* swapped(const Graph& graph, const Argument& weight) {
  const Node* swap = producer(weight, "aten::t");
  if (swap == nullptr) swap = producer(weight, "aten::transpose");
  if (swap == nullptr) return nullptr;
  const at::Tensor stored = stored_tensor(graph, swap->args[0]);
  return stored.defined() && stored.dim() == 2 ? swap : nullptr;
}

}  // namespace

PassReport store_transposes(Graph& graph) {
  PassReport report{"store_transposes", {}, {}};
  for (const auto& node : graph.nodes()) {
    if (!node->is("aten::linear")) continue;
    Argument& weight = node->arg("weight");
    const Node* swap = swapped(graph, weight);
    if (swap == nullptr) continue;
    const std::string name = swap->args[0].value->producer->target() + ".transposed";
    if (graph.find_attribute(name) == nullptr) {
      const at::Tensor stored = stored_tensor(graph, swap->args[0]);
      graph.set_attribute(name, {Attribute::Kind::parameter, stored.detach().t().contiguous()});
    }
    weight = graph.attribute(name);
    report.changes.push_back(label(*node) + " reads a stored transpose");
  }
  if (report.changed()) graph.remove_dead(/*attributes=*/true);
  return report;
}

}  // namespace ulp::graph
