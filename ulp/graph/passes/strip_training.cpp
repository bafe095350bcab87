#include <ATen/core/function_schema.h>

#include <algorithm>
#include <unordered_set>

#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/passes/canonicalize_frontend.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

/// Flags and numbers that follow the mode become what they are in eval mode, and types that autocast lowers
/// what they are without it.
int freeze_flags(std::vector<Argument>& args) {
  int count = 0;
  for (Argument& arg : args) {
    count += freeze_flags(arg.items);
    if (arg.kind == Argument::Kind::training) {
      arg = Argument(c10::IValue(arg.inverted));
    } else if (arg.kind == Argument::Kind::by_mode) {
      arg = Argument(arg.items.front());
    } else if (arg.kind == Argument::Kind::dtype) {
      arg = Argument(arg.literal);
    } else {
      continue;
    }
    ++count;
  }
  return count;
}

bool is_dropout(const Node& node) {
  return is_any(
      node, {"aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout"});
}

/// Results of operators that make new tensors are dense; views may not be.
bool is_dense(const Value& value) {
  const Node& node = *value.producer;
  if (node.kind() != Node::Kind::call || !value.meta || value.meta->channels_last) return false;
  const auto& returns = node.schema().returns();
  return returns.size() == 1 && !returns[0].alias_info();
}

/// Ops that may return their argument itself without their schema saying so.
bool may_return_argument(const Node& node) {
  return node.is("aten::contiguous") || node.is("aten::reshape") || node.is("aten::flatten") ||
         node.is("aten::to") || is_dropout(node);
}

/// relu of what is not negative, relu6 of relu6.
bool clamps_again(const Node& node) {
  const std::optional<ClampBounds> bounds = clamp_bounds(node);
  const std::optional<ClampBounds> before = bounds ? clamp_bounds(*node.args[0].value->producer) : bounds;
  return before && before->low >= bounds->low && before->high <= bounds->high;
}

bool does_nothing(const Node& node) {
  if (clamps_again(node)) return true;
  if (is_dropout(node)) return !node.arg("train").literal.toBool() || number(node.arg("p")) == 0.0;
  if (node.is("aten::alias") || node.is("aten::detach")) return true;
  if (!node.is("aten::contiguous") && !node.is("aten::clone")) return false;
  const Value& input = *node.args[0].value;
  const std::optional<int64_t> format = integer(node.arg("memory_format"));
  constexpr int64_t kPreserve = 1;  // as at::MemoryFormat counts
  bool nchw = format.value_or(0) == 0 || (node.is("aten::clone") && format == kPreserve);
  return nchw && is_dense(input) && !may_return_argument(*input.producer);
}

/// Without a copy, what is viewed may lie in another order.
void views_as_reshapes(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->target() == "aten::view")
      graph.retarget(node.get(), "aten::reshape", {node->args[0], node->args[1]});
  }
}

/// What only train mode reads runs in train mode only, whichever pass has made it.
void mark_train_only(Graph& graph) {
  std::unordered_set<const Value*> read, read_in_eval;
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) {
    Node& node = **it;
    const auto among = [&](const std::unordered_set<const Value*>& values) {
      return std::ranges::any_of(node.outputs(),
                                 [&](const auto& output) { return values.contains(output.get()); });
    };
    if (node.kind() == Node::Kind::call && !node.has_effect() && among(read) && !among(read_in_eval))
      node.train_only = true;
    for (const Value* value : node.reads()) {
      read.insert(value);
      if (!node.train_only) read_in_eval.insert(value);
    }
  }
}

}  // namespace

PassReport strip_training(Graph& graph) {
  PassReport report{"strip_training", {}, {}};
  if (Node* output = graph.output_node(); output != nullptr && freeze_flags(output->args))
    report.changes.push_back("the result fixed to that of eval mode");
  mark_train_only(graph);
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  for (Node*& node : nodes) {
    node->eval_only = false;
    if (!node->is("ulp::by_mode")) continue;
    report.changes.push_back(node->name() + " removed: it is '" + node->args[0].value->name +
                             "' in eval mode");
    graph.replace_uses(node->output(), node->args[0].value);
    graph.erase(node);
    node = nullptr;
  }
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {  // readers first, so that chains can go
    if (*it == nullptr || !(*it)->train_only) continue;
    report.changes.push_back((*it)->name() + " removed: it runs in train mode only");
    graph.erase(*it);
    *it = nullptr;
  }
  int clones = 0;
  for (Node* node : nodes) {
    if (!node || node->kind() != Node::Kind::call) continue;
    if (freeze_flags(node->args)) report.changes.push_back(label(*node) + " fixed to eval mode");
    if (const char* made = clamp_by_bounds(graph, *node))
      report.changes.push_back(label(*node) + " (aten::clamp) -> " + made);
    if (is_dropout(*node) && !does_nothing(*node))
      report.near_misses.push_back(node->name() + " not removed: it drops in eval mode too");
    if (!does_nothing(*node)) continue;
    clones += node->is("aten::clone");
    report.changes.push_back(node->name() + " (" + node->target() +
                             ") removed: it does nothing in eval mode");
    graph.replace_uses(node->output(), node->args[0].value);
    graph.erase(node);
  }
  if (clones > 0) views_as_reshapes(graph);
  graph.remove_dead();
  return report;
}

}  // namespace ulp::graph
