// Writing calls and constants into a graph beside a node that they spell out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// Writes calls before a node, of the same module.
class Writer {
 public:
  Writer(graph::Graph& graph, graph::Node& node) : graph_(graph), node_(node) {}

  graph::Argument operator()(const char* target, std::vector<graph::Argument> args) const {
    graph::Node* made = graph_.call(target, std::move(args), &node_);
    made->scope = node_.scope;
    return made->output();
  }
  graph::Argument constant(const char* suffix, const at::Tensor& tensor) const {
    const std::string name = graph_.unique_name(node_.name() + suffix);
    graph_.set_attribute(name, {graph::Attribute::Kind::constant, tensor});
    return graph_.attribute(name);
  }
  graph::Argument unsqueezed(const graph::Argument& x, int64_t dim = -1) const {
    return (*this)("aten::unsqueeze", {x, c10::IValue(dim)});
  }
  /// Who reads the node's first result reads `made` instead.
  void replace(const graph::Argument& made) const { graph_.replace_uses(node_.output(), made.value); }
  /// True where a result of the node besides the first is read.
  bool reads_further_results() const {
    for (size_t i = 1; i < node_.outputs().size(); ++i) {
      if (!graph_.users(node_.output(i)).empty()) return true;
    }
    return false;
  }

 private:
  graph::Graph& graph_;
  graph::Node& node_;
};

inline graph::Argument literal(int64_t value) {
  return c10::IValue(value);
}
inline graph::Argument ints(std::vector<int64_t> values) {
  return c10::IValue(std::move(values));
}
/// Sizes in which the batch may be.
inline graph::Argument sizes_argument(const std::vector<graph::SizeExpr>& sizes) {
  std::vector<graph::Argument> items;
  for (const graph::SizeExpr& size : sizes) {
    items.push_back(size.constant() ? literal(size.offset) : graph::Argument(size));
  }
  return graph::Argument::list(std::move(items));
}

}  // namespace ulp::lowering
