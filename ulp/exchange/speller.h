// Calls of PyTorch's operators in the place of another one.
#pragma once

#include <string>
#include <vector>

#include "ulp/graph/formula.h"

namespace ulp::exchange {

/// Adds calls before a node, whose results know their types and sizes.
class Speller {
 public:
  using Sizes = std::vector<graph::SizeExpr>;

  Speller(graph::Graph& graph, graph::Node& node) : graph_(graph), node_(node) {}

  graph::Value* call(const char* target, std::vector<graph::Argument> args, at::ScalarType type, Sizes sizes);
  /// The result has type and sizes of the first argument.
  graph::Value* map(const char* target, std::vector<graph::Argument> args);
  graph::Value* to(graph::Value* value, at::ScalarType type);
  /// By an operator of two tensors, whose result has type and sizes of the first.
  graph::Value* with(const char* target, graph::Value* a, graph::Value* b) { return map(target, {a, b}); }
  /// The same of a number.
  graph::Value* with(const char* target, graph::Value* a, double b);
  graph::Value* view(graph::Value* value, const std::vector<int64_t>& sizes);

  /// A tensor argument; sizes and type are known after it, also of stored ones.
  graph::Value* tensor(const char* argument);
  int64_t integer(const char* argument) const;
  /// One number, or one a channel, shaped so that it multiplies x along the axis (-1: one number), as f32.
  graph::Value* along(const char* argument, int64_t axis, const graph::Value& x);
  /// The node's readers read this instead, and the node goes.
  void replace(graph::Value* value);

  graph::Graph& graph() { return graph_; }
  graph::Node& node() { return node_; }

 private:
  graph::Graph& graph_;
  graph::Node& node_;
};

using graph::fixed;

}  // namespace ulp::exchange
