#include "ulp/exchange/half.h"

#include <ATen/core/function_schema.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"

namespace ulp::exchange {

namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

/// Calls that stay in float32: batch norms that folded into no layer, whose variance has no bounds (OpenVINO refuses norms of two
/// types), and recurrent layers, at whose halves ONNX Runtime crashes.
std::vector<Node*> float_calls(const Graph& graph) {
  std::vector<Node*> found;
  for (const auto& node : graph.nodes()) {
    if (node->is("aten::batch_norm") || node->is("aten::lstm") || node->is("aten::gru"))
      found.push_back(node.get());
  }
  return found;
}

/// Names of their tensors.
std::set<std::string> float_tensors(const Graph& graph) {
  std::set<std::string> names;
  for (const Node* node : float_calls(graph)) {
    for (const Value* value : node->reads()) {
      if (value->producer->kind() == Node::Kind::attribute) names.insert(value->producer->target());
    }
  }
  return names;
}

/// Tensors but those to keep.
void halve_tensors(Graph& graph, const std::set<std::string>& kept, const char* where) {
  const at::NoGradGuard no_grad;
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

/// What is half and what is not has to be known.
void expect_types(const Graph& graph, const Node& node, const char* where) {
  for (const auto& output : node.outputs()) {
    if (!output->meta && !node.train_only && !graph.users(output.get()).empty())
      fail(where, "expected results whose type was seen for fp16, got ", graph::describe(node));
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

/// Halves that an argument names, as floats; what was made a half of an input is that input.
void cast_argument(Graph& graph, Argument& argument, Node* before) {
  if (argument.is_value() && is_float(*argument.value, at::kHalf)) {
    const Node& producer = *argument.value->producer;
    const bool input = producer.is("aten::to.dtype") && producer.args[0].is_value() &&
                       producer.args[0].value->producer->kind() == Node::Kind::input &&
                       is_float(*producer.args[0].value, at::kFloat);
    argument = input ? producer.args[0].value : cast(graph, argument.value, at::kFloat, before);
  }
  for (Argument& item : argument.items) cast_argument(graph, item, before);
}

/// float16 comes in and leaves.
void cast_around(Graph& graph, Node& node) {
  for (Argument& argument : node.args) cast_argument(graph, argument, &node);
  const auto place = std::ranges::find(graph.nodes(), &node, &std::unique_ptr<Node>::get);
  Node* next = std::next(place)->get();
  for (const auto& result : node.outputs()) {
    if (!is_float(*result, at::kHalf)) continue;
    result->meta->dtype = at::kFloat;
    Value* half = cast(graph, result.get(), at::kHalf, next);
    graph.replace_uses(result.get(), half, half->producer);
  }
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
  const std::set<std::string> kept = float_tensors(graph);
  halve_tensors(graph, kept, where);
  for (const auto& node : graph.nodes()) {
    if (node->target().starts_with("ulp::"))
      fail(where, "expected a float model for fp16, got ", graph::describe(*node));
    if (node->kind() == Node::Kind::call) {
      expect_types(graph, *node, where);
      halve_arguments(*node);
    }
    const bool stays = node->kind() == Node::Kind::input ||
                       (node->kind() == Node::Kind::attribute && kept.contains(node->target()));
    for (const auto& output : node->outputs()) {
      if (!stays && is_float(*output, at::kFloat)) output->meta->dtype = at::kHalf;
    }
  }
  for (Value* input : graph.inputs()) {
    if (!is_float(*input, at::kFloat)) continue;
    Value* half = cast(graph, input, at::kHalf, first_call(graph));
    graph.replace_uses(input, half, half->producer);
  }
  for (Node* node : float_calls(graph)) cast_around(graph, *node);
  cast_argument(graph, graph.output_node()->args.at(0), graph.output_node());
  graph.remove_dead();
}

}  // namespace ulp::exchange
