#include "ulp/quant/analysis/compare.h"

#include <torch/types.h>

#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/quant/static/inference_form.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Graph;
using graph::GraphModule;
using graph::Node;
using graph::Value;

bool only_reshapes(const Node& node) {
  return is_any(node, {"aten::flatten", "aten::view", "aten::reshape"});
}

/// Floating-point activations that stand for something of the model; our own nodes are none.
bool is_activation(const Value& value) {
  const Node& node = *value.producer;
  const bool computed = node.kind() == Node::Kind::call && !node.op().starts_with("ulp::") &&
                        !only_reshapes(node) && !node.train_only;
  return (computed || node.kind() == Node::Kind::input) && value.meta &&
         at::isFloatingType(value.meta->dtype);
}

/// What the model goes on with instead of this value: its dequantized codes.
Value* dequantized(const Graph& graph, Value* value) {
  for (const Node* reader : graph.users(value)) {
    if (!reader->is("ulp::quantize") || reader->args[0].value != value) continue;
    for (const Node* next : graph.users(reader->output())) {
      if (next->is("ulp::dequantize")) return next->output();
    }
  }
  return nullptr;
}

/// The values of a graph after one run.
std::vector<at::Tensor> run(const std::shared_ptr<Graph>& graph, const std::vector<Value*>& values,
                            const std::vector<at::Tensor>& inputs) {
  graph->set_output(Argument::tuple(std::vector<Argument>(values.begin(), values.end())));
  graph->remove_dead();
  GraphModule module(graph);
  module.eval();
  const at::NoGradGuard no_grad;
  return module.forward_all(inputs);
}

std::string layer_of(const Node& node) {
  return node.scope.empty() ? node.name() : node.scope;
}

}  // namespace

std::vector<ValueComparison> compare(const GraphModule& float_model, const GraphModule& quantized,
                                     const std::vector<at::Tensor>& inputs) {
  const std::shared_ptr<Graph> exact = inference_graph(float_model.graph());
  const std::shared_ptr<Graph> rounded = quantized.graph().clone();
  std::unordered_map<std::string, Value*> by_name;
  for (const auto& node : rounded->nodes()) {
    for (const auto& value : node->outputs()) by_name[value->name] = value.get();
  }
  std::vector<ValueComparison> rows;
  std::vector<Value*> of_exact, of_rounded;
  for (const auto& node : exact->nodes()) {
    for (const auto& value : node->outputs()) {
      const auto other = by_name.find(value->name);
      if (!is_activation(*value) || other == by_name.end()) continue;
      Value* codes = dequantized(*rounded, other->second);
      const bool is_input = node->kind() == Node::Kind::input;
      rows.push_back({.layer = layer_of(*node),
                      .op = is_input ? "input" : std::string(node->op()),
                      .value = value->name,
                      .quantized = codes != nullptr,
                      .error = {}});
      of_exact.push_back(value.get());
      of_rounded.push_back(codes ? codes : other->second);
    }
  }
  if (rows.empty())
    fail("quant.compare", "expected a model and what convert() made of it, got no common value");
  const std::vector<at::Tensor> x = run(exact, of_exact, inputs), y = run(rounded, of_rounded, inputs);
  for (size_t i = 0; i < rows.size(); ++i) {
    try {
      rows[i].error = quantization_error(x[i], y[i]);
    } catch (const Error& error) {
      fail("quant.compare", '\'', rows[i].layer, "' (", rows[i].value, "): ", error.what());
    }
  }
  return rows;
}

}  // namespace ulp::quant
