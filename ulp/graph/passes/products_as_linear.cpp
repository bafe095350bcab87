#include "ulp/graph/passes/products_as_linear.h"

#include <torch/types.h>

#include <vector>

#include "ulp/graph/passes/linear_forms.h"
#include "ulp/graph/passes/rewrite.h"

namespace ulp::graph {

namespace {

/// A node that turns the stored matrix; null for any other factor.
Value* turned(Graph& graph, const Argument& factor, Node* product) {
  const at::Tensor stored = stored_tensor(graph, factor);
  if (!stored.defined() || stored.dim() != 2 || !at::isFloatingType(stored.scalar_type())) return nullptr;
  Node* turn = graph.call("aten::t", {factor}, product);
  turn->scope = product->scope;
  if (factor.value->meta) {
    turn->output()->meta = factor.value->meta;
    std::swap(turn->output()->meta->sizes[0], turn->output()->meta->sizes[1]);
  }
  return turn->output();
}

}  // namespace

PassReport products_as_linear(Graph& graph) {
  PassReport report{"products_as_linear", {}, {}};
  std::vector<Node*> products;
  for (const auto& node : graph.nodes())
    if (node->is("aten::addmm") || node->is("aten::matmul") || node->is("aten::mm"))
      products.push_back(node.get());
  for (Node* node : products) {
    const std::string before = label(*node) + ": " + node->target();
    if (from_addmm(graph, *node, turned, report) || from_matmul(graph, *node, turned, report))
      report.changes.push_back(before + " -> aten::linear");
  }
  graph.remove_dead();
  return report;
}

}  // namespace ulp::graph
