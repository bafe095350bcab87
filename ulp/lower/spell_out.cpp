#include "ulp/lower/spell_out.h"

#include <vector>

#include "ulp/lower/match.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;

namespace {

/// A call of this op before `node`, of the same module.
Argument called(Graph& graph, const char* target, std::vector<Argument> args, Node& node) {
  Node* made = graph.call(target, std::move(args), &node);
  made->scope = node.scope;
  return made->output();
}

void stack(Graph& graph, Node& node) {
  const Argument& tensors = node.arg("tensors");
  if (tensors.kind != Argument::Kind::list) return;
  const Argument dim = node.arg("dim");
  std::vector<Argument> items;
  for (const Argument& tensor : tensors.items) {
    items.push_back(called(graph, "aten::unsqueeze", {tensor, dim}, node));
  }
  graph.retarget(&node, "aten::cat", {Argument::list(std::move(items)), dim});
}

}  // namespace

void spell_out(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->is("aten::stack")) stack(graph, *node);
  }
}

}  // namespace ulp::lowering
