#include "ulp/memory/checkpoint/call_order.h"

#include "ulp/base/error.h"

namespace ulp::memory {

CallOrder::CallOrder(const graph::Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->kind() != graph::Node::Kind::call && node->kind() != graph::Node::Kind::module) continue;
    number[node.get()] = size();
    calls.push_back(node.get());
  }
}

int64_t CallOrder::of(const graph::Node* node) const {
  const auto found = number.find(node);
  if (found == number.end())
    fail("memory.plan", "expected calls of the graph in a segment, got ", node ? "another node" : "null");
  return found->second;
}

}  // namespace ulp::memory
