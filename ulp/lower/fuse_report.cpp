#include "ulp/lower/fuse_report.h"

#include <algorithm>

namespace ulp::lowering {

using graph::Node;
using graph::Value;

namespace {

bool is_any(const Node& node, std::initializer_list<const char*> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](const char* op) { return node.is(op); });
}

bool is_pool(const Node& node) {
  return is_any(node, {"aten::max_pool2d", "aten::avg_pool2d", "aten::adaptive_avg_pool2d", "aten::mean"});
}

bool follows(const Node& node) {
  return node.is("ulp::quantize") || node.is("aten::add") || is_pool(node) || activation_of(node) ||
         is_any(node, {"aten::batch_norm", "aten::gelu", "aten::silu", "aten::sigmoid", "aten::tanh",
                       "aten::hardswish", "aten::hardsigmoid", "aten::leaky_relu", "aten::elu"});
}

bool starts_step(const Node& node) {
  return is_any(node, {"aten::conv2d", "aten::linear", "ulp::linear_dynamic", "aten::add"});
}

/// Why `node` is not part of the step `before`, whose result it reads as `value`; empty where another line
/// says so.
std::string obstacle(const graph::Graph& graph, const Node& node, const Value& value, const Group& before) {
  if (node.is("aten::batch_norm")) return "";  // folding has reported it
  if (is_pool(node)) return "no step of the engine ends in a pooling";
  const std::vector<Node*> readers = graph.users(&value);
  for (const Node* reader : readers) {
    if (reader != &node && reader->kind() == Node::Kind::call)
      return "its result is also read by " + describe(*reader);
    if (reader != &node) return "its result is a result of the model";
  }
  if (node.is("aten::add")) {
    if (!is_plain_add(node)) return "its operands differ in shape or its alpha is not 1";
    if (before.root->is("aten::add")) return "an add takes no other add";
    if (before.residual) return "that step has an add already";
    if (before.activation != runtime::Activation::none) return "that step ends in an activation";
    return before.quantize ? "that step ends in codes" : "its other operand is computed later, or stored";
  }
  if (before.quantize) return "that step ends in codes";
  if (before.activation != runtime::Activation::none) return "that step has an activation already";
  return "no step of this kind ends in " + std::string(node.op());
}

}  // namespace

void report_unfused(const graph::Graph& graph, const Groups& groups,
                    const std::function<void(const std::string&)>& report) {
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call || !follows(*node)) continue;
    const Group* own = groups.at(node.get());
    if (own == nullptr || own->root != node.get()) continue;
    for (const Value* value : node->reads()) {
      if (value->producer->kind() != Node::Kind::call) continue;
      const Group* before = groups.at(value->producer);
      if (before == nullptr || !starts_step(*before->root)) continue;
      const std::string why = obstacle(graph, *node, *value, *before);
      if (why.empty()) continue;
      report(describe(*node) + " not fused into " + describe(*before->root) + ": " + why);
    }
  }
}

}  // namespace ulp::lowering
