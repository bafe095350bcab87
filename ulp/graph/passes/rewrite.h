// What passes share that replace layers by other layers.
#pragma once

#include <string>
#include <vector>

#include "ulp/graph/passes/pass.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

/// The parameter, buffer or constant that is given; undefined where it is computed or none.
inline at::Tensor stored_tensor(const Graph& graph, const Argument& arg) {
  return arg.is_value() ? graph.attribute_tensor(arg.value) : at::Tensor();
}

/// The value of a new parameter: of this name, or of one with a number where it is taken.
inline Value* store_parameter(Graph& graph, const std::string& wish, const at::Tensor& tensor) {
  std::string name = wish;
  for (int i = 2; graph.find_attribute(name); ++i) name = wish + "_" + std::to_string(i);
  graph.set_attribute(name, {Attribute::Kind::parameter, tensor});
  return graph.attribute(name);
}

/// Runs `rewrite` on each call of this op; it returns why it could not, or nothing.
template <typename Rewrite>
PassReport rewrite_each(Graph& graph, const char* pass, const char* op, Rewrite rewrite) {
  PassReport report{pass, {}, {}};
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) {
    if (node->is(op)) nodes.push_back(node.get());
  }
  for (Node* node : nodes) {
    const std::string title = label(*node) + " (" + op + ")";
    const std::string obstacle = rewrite(*node);
    if (obstacle.empty()) {
      report.changes.push_back(title + " made a convolution");
    } else {
      report.near_misses.push_back(title + " not made a convolution: " + obstacle);
    }
  }
  if (report.changed()) graph.remove_dead(/*attributes=*/true);
  return report;
}

}  // namespace ulp::graph
