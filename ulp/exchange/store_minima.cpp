#include "ulp/exchange/store_minima.h"

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::exchange {

using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

/// The name of the weight whose codes these are (quant::read_quantized_weights()).
std::string weight_name(const std::string& codes) {
  const std::string suffix = ".int4";
  return codes.ends_with(suffix) ? codes.substr(0, codes.size() - suffix.size()) : codes + ".values";
}

}  // namespace

void store_minima(Graph& graph, const char* where) {
  std::vector<Node*> coded;
  for (const auto& node : graph.nodes()) {
    if (node->is("ulp::dequantize_weight") && !node->arg("minimum").is_none()) coded.push_back(node.get());
  }
  for (Node* node : coded) {
    const auto stored = [&](const char* argument) {
      const at::Tensor tensor = graph.attribute_tensor(node->arg(argument).value);
      if (!tensor.defined())
        fail(where, "expected '", argument, "' of ", graph::label(*node), " to be a tensor that is stored");
      return tensor.detach();
    };
    const at::Tensor values = quant::dequantize_weight({.codes = stored("codes"),
                                                        .scale = stored("scale"),
                                                        .columns = node->arg("columns").literal.toInt(),
                                                        .minimum = stored("minimum")});
    const std::string name = graph.unique_name(weight_name(node->arg("codes").value->producer->target()));
    graph.set_attribute(name, {graph::Attribute::Kind::parameter, values});
    Value* weight = graph.attribute(name);
    weight->meta = node->output()->meta;
    graph.replace_uses(node->output(), weight);
    graph.erase(node);
  }
}

}  // namespace ulp::exchange
