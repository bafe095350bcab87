// Which nodes become one step: a root with the add, the activation and the quantize that follow it.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ulp/lower/match.h"

namespace ulp::lowering {

/// One step to be. A node that fuses with nothing is a group of its own.
struct Group {
  const graph::Node* root = nullptr;
  const graph::Node* last = nullptr;  ///< the step runs in the place of this node
  graph::Value* residual = nullptr;   ///< conv, linear: the other operand of the add
  runtime::Activation activation = runtime::Activation::none;
  const graph::Node* quantize = nullptr;  ///< ulp::quantize of the result
  /// The float result: what `quantize` reads, or the last node's value.
  graph::Value* result = nullptr;
};

class Groups {
 public:
  /// Finds the groups of a canonical graph. `report` receives why an add or activation stands alone.
  Groups(const graph::Graph& graph, const std::function<void(const std::string&)>& report);
  /// The group that runs in the place of this node; null for a node inside a group.
  const Group* at(const graph::Node* node) const;

 private:
  void grow(const graph::Graph& graph, const graph::Node* root,
            const std::function<void(const std::string&)>& report);
  std::unordered_map<const graph::Node*, Group> by_last_;
  std::unordered_set<const graph::Node*> taken_;  ///< every node of every group
};

/// aten::add.Tensor of two different values of one shape with alpha 1.
bool is_plain_add(const graph::Node& node);

}  // namespace ulp::lowering
