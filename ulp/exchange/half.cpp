#include "ulp/exchange/half.h"

#include <ATen/core/function_schema.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <set>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"

namespace ulp::exchange {

namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

/// Names of the tensors that stay in float32: a variance has no bounds, and no speed depends on it.
std::set<std::string> statistics(const Graph& graph) {
  std::set<std::string> names;
  for (const auto& node : graph.nodes()) {
    if (!node->is("aten::batch_norm")) continue;
    for (const char* argument : {"running_mean", "running_var"}) {
      const Value* value = node->arg(argument).value;
      if (value != nullptr) names.insert(value->producer->target());
    }
  }
  return names;
}

void halve_tensors(Graph& graph, const char* where) {
  const at::NoGradGuard no_grad;
  const std::set<std::string> kept = statistics(graph);
  std::vector<std::pair<std::string, graph::Attribute>> halves;
  for (const auto& [name, attribute] : graph.attributes()) {
    if (attribute.tensor.scalar_type() != at::kFloat || kept.contains(name)) continue;
    const at::Tensor half = attribute.tensor.detach().to(at::kHalf);
    if (at::isinf(half).logical_and(at::isfinite(attribute.tensor)).any().item<bool>())
      fail(where, "expected numbers of at most 65504 for fp16, got ",
           attribute.tensor.abs().max().item<double>(), " in '", name, "'");
    halves.push_back({name, {attribute.kind, half}});
  }
  for (auto& [name, attribute] : halves) graph.set_attribute(name, std::move(attribute));
}

/// A dtype that a call asks for.
void halve_arguments(Node& node) {
  const auto& wanted = node.schema().arguments();
  for (size_t i = 0; i < node.args.size(); ++i) {
    Argument& arg = node.args[i];
    const bool dtype =
        wanted[i].name() == "dtype" && arg.kind == Argument::Kind::literal && arg.literal.isInt();
    if (dtype && static_cast<at::ScalarType>(arg.literal.toInt()) == at::kFloat)
      arg = c10::IValue(static_cast<int64_t>(at::kHalf));
  }
}

/// A cast of `value`, read by all that read it, or by the result alone.
Value* cast(Graph& graph, Value* value, at::ScalarType type, Node* before) {
  Node* node = graph.call("aten::to.dtype", {value, c10::IValue(static_cast<int64_t>(type))}, before);
  node->output()->meta = value->meta;
  if (value->meta) node->output()->meta->dtype = type;
  return node->output();
}

bool is_float(const Value& value, at::ScalarType type) {
  return value.meta && value.meta->dtype == type;
}

void cast_results(Graph& graph, Argument& argument) {
  if (argument.is_value() && is_float(*argument.value, at::kHalf))
    argument = cast(graph, argument.value, at::kFloat, graph.output_node());
  for (Argument& item : argument.items) cast_results(graph, item);
}

/// The first node that is neither an input nor a tensor.
Node* first_call(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::input && node->kind() != Node::Kind::attribute) return node.get();
  }
  return nullptr;
}

}  // namespace

void to_half(Graph& graph, const char* where) {
  const std::set<std::string> kept = statistics(graph);
  halve_tensors(graph, where);
  for (const auto& node : graph.nodes()) {
    if (node->target().starts_with("ulp::"))
      fail(where, "expected a float model for fp16, got ", graph::describe(*node));
    if (node->kind() == Node::Kind::call) halve_arguments(*node);
    const bool stays = node->kind() == Node::Kind::input ||
                       (node->kind() == Node::Kind::attribute && kept.contains(node->target()));
    for (const auto& output : node->outputs()) {
      if (!stays && is_float(*output, at::kFloat)) output->meta->dtype = at::kHalf;
    }
  }
  cast_results(graph, graph.output_node()->args.at(0));
  for (Value* input : graph.inputs()) {
    if (!is_float(*input, at::kFloat)) continue;
    Value* half = cast(graph, input, at::kHalf, first_call(graph));
    graph.replace_uses(input, half, half->producer);
  }
}

}  // namespace ulp::exchange
