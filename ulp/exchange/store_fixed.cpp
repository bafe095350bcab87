#include "ulp/exchange/store_fixed.h"

#include <torch/types.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>

#include "ulp/exchange/seen_values.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/graph/smallest_inputs.h"

namespace ulp::exchange {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

bool is_weight_in_codes(const Node& node) {
  return node.is("ulp::dequantize_weight") || node.is("ulp::dequantize");
}

/// Ops that read the sizes of their argument alone.
bool reads_sizes(const Node& node) {
  constexpr std::string_view kOps[] = {"aten::zeros_like", "aten::ones_like", "aten::full_like",
                                       "aten::new_zeros",  "aten::new_ones",  "aten::new_full"};
  return graph::is_any(node, kOps);
}

/// Whether an argument follows a size that stays free.
bool has_sizes(const Argument& argument) {
  return argument.kind == Argument::Kind::batch || std::ranges::any_of(argument.items, has_sizes);
}

/// Values that follow stored tensors alone, and sizes where these are fixed.
std::unordered_set<const Value*> fixed_values(const Graph& graph, bool sizes_fixed) {
  std::unordered_set<const Value*> fixed;
  for (const auto& node : graph.nodes()) {
    const auto is_fixed = [&](const Value* value) { return fixed.contains(value); };
    const bool computed =
        runs_in_eval(*node) && !node->has_effect() && !is_weight_in_codes(*node) &&
        ((sizes_fixed && reads_sizes(*node)) || std::ranges::all_of(node->reads(), is_fixed)) &&
        (sizes_fixed || std::ranges::none_of(node->args, has_sizes));
    if (!computed && node->kind() != Node::Kind::attribute) continue;
    for (const auto& output : node->outputs()) fixed.insert(output.get());
  }
  return fixed;
}

/// The name of what the node makes of stored tensors: that of the one which it reads, or its own.
std::string stored_name(const Graph& graph, const Node& node) {
  const std::vector<Value*> reads = node.reads();
  const bool one = reads.size() == 1 && reads[0]->producer->kind() == Node::Kind::attribute;
  return graph.unique_name((one ? reads[0]->producer->target() : node.output()->name) + ".folded");
}

void store(Graph& graph, Value& value, const at::Tensor& tensor) {
  const std::string name = stored_name(graph, *value.producer);
  graph.set_attribute(name, {graph::Attribute::Kind::constant, tensor.detach().contiguous()});
  Value* stored = graph.attribute(name);
  stored->meta = value.meta;
  graph.replace_uses(&value, stored);
}

}  // namespace

void store_fixed(Graph& graph, const std::vector<Value*>& values, const std::vector<at::Tensor>& tensors,
                 bool sizes_fixed) {
  const std::unordered_set<const Value*> fixed = fixed_values(graph, sizes_fixed);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!fixed.contains(values[i])) continue;
    const auto leaves = [&](const Node* user) {
      return user->outputs().empty() || !fixed.contains(user->output());
    };
    if (std::ranges::none_of(graph.users(values[i]), leaves)) continue;
    store(graph, *values[i], tensors[i]);
  }
  graph.remove_dead(/*attributes=*/true);
}

void store_fixed(Graph& graph, const std::function<bool(const Node&)>& which) {
  const std::unordered_set<const Value*> fixed = fixed_values(graph, /*sizes_fixed=*/false);
  const auto goes = [&](const Node& node) {
    return node.kind() == Node::Kind::call && !node.outputs().empty() && fixed.contains(node.output()) &&
           which(node);
  };
  std::vector<Value*> values;
  for (Value* value : computed_values(graph)) {
    const auto stays = [&](const Node* user) { return !goes(*user); };
    if (goes(*value->producer) && std::ranges::any_of(graph.users(value), stays)) values.push_back(value);
  }
  const auto inputs = graph::smallest_inputs(graph);
  if (values.empty() || !inputs) return;
  const std::vector<at::Tensor> tensors = seen_values(graph, values, *inputs);
  for (size_t i = 0; i < tensors.size(); ++i) store(graph, *values[i], tensors[i]);
  graph.remove_dead(/*attributes=*/true);
}

void store_fixed(Graph& graph) {
  const auto inputs = graph::smallest_inputs(graph);
  if (!inputs) return;
  const std::unordered_set<const Value*> fixed = fixed_values(graph, /*sizes_fixed=*/false);
  std::vector<Value*> values;
  for (Value* value : computed_values(graph)) {
    if (fixed.contains(value)) values.push_back(value);
  }
  if (!values.empty()) store_fixed(graph, values, seen_values(graph, values, *inputs), false);
}

}  // namespace ulp::exchange
