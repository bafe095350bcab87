#include "ulp/graph/passes/fixed_tensor.h"

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>
#include <vector>

#include "ulp/graph/extract.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/mutated_buffers.h"

namespace ulp::graph {

namespace {

bool follows_nothing(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::literal:
    case Argument::Kind::value:
    case Argument::Kind::dtype:
      return true;
    case Argument::Kind::batch:
      return argument.batch.constant();
    case Argument::Kind::list:
      return std::ranges::all_of(argument.items, follows_nothing);
    default:
      return false;
  }
}

bool is_fixed_call(const Node& node) {
  return node.kind() == Node::Kind::call && !node.has_effect() && !node.train_only && !node.eval_only &&
         std::ranges::all_of(node.args, follows_nothing);
}

/// The calls that make a value, in order; nothing where it is not fixed.
std::optional<std::vector<const Node*>> makers_of(const Graph& graph, const Value& value) {
  const WrittenState written(graph);
  std::unordered_set<const Value*> fixed, wanted = {&value};
  for (const auto& node : graph.nodes()) {
    const std::vector<Value*> reads = node->reads();
    const bool stored = node->kind() == Node::Kind::attribute && !written.holds(node->output());
    const bool made = is_fixed_call(*node) &&
                      std::ranges::all_of(reads, [&](const Value* read) { return fixed.contains(read); });
    if (!stored && !made) continue;
    for (const auto& output : node->outputs()) fixed.insert(output.get());
  }
  if (!fixed.contains(&value)) return std::nullopt;
  std::vector<const Node*> makers;
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    const auto is_wanted = [&](const auto& output) { return wanted.contains(output.get()); };
    if ((*node)->kind() != Node::Kind::call || std::ranges::none_of((*node)->outputs(), is_wanted)) continue;
    makers.push_back(node->get());
    for (const Value* read : (*node)->reads()) wanted.insert(read);
  }
  std::ranges::reverse(makers);
  return makers;
}

/// True where every row has a number beside which a score counts.
bool leaves_keys_open(const at::Tensor& mask) {
  if (mask.dim() == 0 || !mask.is_floating_point()) return false;
  const double lowest = mask.scalar_type() == at::kHalf ? -65504.0 : std::numeric_limits<float>::lowest();
  return (mask > lowest / 2).any(-1).all().item<bool>();
}

}  // namespace

at::Tensor fixed_tensor(const Graph& graph, const Value& value) {
  const auto makers = makers_of(graph, value);
  if (!makers) return {};
  if (makers->empty()) return graph.attribute_tensor(&value).detach();
  const torch::NoGradGuard no_grad;
  GraphModule part(extract(graph, *makers, {}, {&value}).graph);
  part.eval();
  return part.forward_all({}).at(0);
}

bool may_hide_all_keys(const Graph& graph, const Value& mask) {
  const at::Tensor held = fixed_tensor(graph, mask);
  return !held.defined() || !leaves_keys_open(held);
}

}  // namespace ulp::graph
