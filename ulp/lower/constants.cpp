#include "ulp/lower/constants.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "ulp/graph/graph_module.h"
#include "ulp/graph/mutated_buffers.h"
#include "ulp/lower/shapes.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

bool is_fixed(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::literal:
    case Argument::Kind::value:
      return true;
    case Argument::Kind::list:
      return std::ranges::all_of(argument.items, is_fixed);
    default:
      return false;
  }
}

/// Numbers of a layer whose codes are what the layer wants.
bool is_weight(const Node& node) {
  if (node.is("ulp::dequantize_weight")) return true;
  if (node.is("aten::to")) return node.args[0].is_value() && is_weight(*node.args[0].value->producer);
  return node.is("ulp::dequantize") && node.args[0].is_value() &&
         node.args[0].value->producer->kind() == Node::Kind::attribute;
}

/// Values that depend on nothing but attributes, in order of execution. Weights are none of them, but what a layer makes
/// of them and of fixed numbers is, as the embeddings of positions are.
std::unordered_set<const Value*> fixed_values(const Graph& graph) {
  const graph::WrittenState written(graph);
  std::unordered_set<const Value*> fixed, weights;
  for (const auto& node : graph.nodes()) {
    const bool attribute = node->kind() == Node::Kind::attribute;
    const std::vector<Value*> reads = node->reads();
    const auto known = [&](const Value* value) { return fixed.contains(value) || weights.contains(value); };
    const auto of_weights = [&](const Value* value) { return weights.contains(value); };
    const bool computed =
        node->kind() == Node::Kind::call && !node->has_effect() && !written.touches(*node) &&
        !node->is("ulp::from_position") && std::ranges::all_of(node->args, is_fixed) &&
        std::ranges::all_of(reads, known) &&
        (reads.empty() || !of_weights(reads[0]) || node->is("aten::embedding") || is_weight(*node));
    if (!attribute && !computed) continue;
    for (const auto& value : node->outputs()) (is_weight(*node) ? weights : fixed).insert(value.get());
  }
  return fixed;
}

}  // namespace

void fold_constants(Graph& graph) {
  const std::unordered_set<const Value*> fixed = fixed_values(graph);
  std::vector<Value*> wanted;
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call) continue;
    for (const auto& value : node->outputs()) {
      const auto users = graph.users(value.get());
      const auto is_outside = [&](const Node* user) {
        return user->outputs().empty() || !fixed.contains(user->output());
      };
      if (fixed.contains(value.get()) && std::ranges::any_of(users, is_outside))
        wanted.push_back(value.get());
    }
  }
  const std::vector<at::Tensor> tensors = evaluate_fixed(graph, wanted);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string name = graph.unique_name(wanted[i]->name + ".folded");
    graph.set_attribute(name, {graph::Attribute::Kind::constant, tensors[i].detach().clone()});
    graph.replace_uses(wanted[i], graph.attribute(name));
  }
}

}  // namespace ulp::lowering
