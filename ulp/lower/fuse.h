// Which nodes become one step: a chain of graph/fusion with the quantize that follows it.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ulp/graph/fusion/chain.h"
#include "ulp/lower/match.h"

namespace ulp::lowering {

/// One step to be. A node that fuses with nothing is a group of its own.
struct Group {
  const graph::Node* root = nullptr;
  const graph::Node* last = nullptr;  ///< the step runs in the place of this node
  graph::Value* residual = nullptr;   ///< conv, linear: the other operand of the add
  Activation activation = Activation::none;
  const graph::Node* quantize = nullptr;  ///< ulp::quantize of the result
  /// The float result: what `quantize` reads, or the last node's value.
  graph::Value* result = nullptr;
  std::vector<const graph::Node*> inner = {};  ///< pointwise: nodes that the step of `root` does with it
};

/// What the engine's steps take: layers and sums end in clamps, layers in curves, too.
graph::FusionPolicy engine_policy();

class Groups {
 public:
  /// Groups the nodes of a canonical graph around its chains.
  Groups(const graph::Graph& graph, const std::vector<graph::Chain>& chains);
  /// The group that runs in the place of this node; null for a node inside a group.
  const Group* at(const graph::Node* node) const;

 private:
  void add(const graph::Graph& graph, Group group);
  std::unordered_map<const graph::Node*, Group> by_last_;
  std::unordered_set<const graph::Node*> taken_;  ///< every node of every group
};

/// aten::add.Tensor of two values of one shape with alpha 1.
bool is_plain_add(const graph::Node& node);

}  // namespace ulp::lowering
