#include "ulp/quant/weights/quantized_weight.h"

#include <torch/utils.h>

#include <set>

#include "ulp/base/error.h"
#include "ulp/quant/weights/layer_rewrite.h"
#include "ulp/quant/weights/weight_coder.h"

namespace ulp::quant {

using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

constexpr const char* kReadWeightCodesWhere = "quant.read_quantized_weights";

Value* buffer(Graph& graph, const std::string& name, const at::Tensor& tensor) {
  graph.set_attribute(name, {Attribute::Kind::buffer, tensor});
  return graph.attribute(name);
}

/// The model's name of a weight that store_transposes may have turned.
std::string own_name(const std::string& name) {
  const std::string turned = ".transposed";
  return name.ends_with(turned) ? name.substr(0, name.size() - turned.size()) : name;
}

}  // namespace

std::string weight_name(const Node& layer) {
  return own_name(layer.arg("weight").value->producer->target());
}

std::string coding_obstacle(const Graph& graph, const Node& layer) {
  const at::Tensor weight = graph.attribute_tensor(layer.arg("weight").value);
  return weight.defined() && weight.dim() == 2 ? "" : "its weight is computed";
}

void WeightCoder::rewrite(Graph& graph, Node* layer) {
  layer->arg("weight") = decoded(graph, layer);
}

Value* WeightCoder::decoded(Graph& graph, Node* layer) {
  const Value* weight = layer->arg("weight").value;
  Value*& made = decoded_[weight];
  if (made != nullptr) return made;
  const at::NoGradGuard no_grad;
  const std::string name = weight->producer->target();
  const StoredQuantizedWeight codes = make_(name, graph.attribute_tensor(weight).detach());
  const auto optional = [&](const char* suffix, const std::optional<at::Tensor>& tensor) {
    return tensor ? graph::Argument(buffer(graph, name + suffix, *tensor)) : graph::Argument(c10::IValue());
  };
  const bool nibbles = codes.codes.scalar_type() == at::kByte;
  Node* node =
      graph.call("ulp::dequantize_weight",
                 {buffer(graph, name + (nibbles ? ".int4" : ".int8"), codes.codes),
                  buffer(graph, name + ".scale", codes.scale), optional(".zero_point", codes.zero_point),
                  c10::IValue(codes.columns), optional(".minimum", codes.minimum)},
                 layer);
  node->scope = layer->scope;
  node->output()->meta = weight->meta;
  const at::ScalarType type = graph.attribute_tensor(weight).scalar_type();
  if (type == at::kFloat) return made = node->output();
  // Layers of 16 bits read weights of 16 bits.
  if (node->output()->meta) node->output()->meta->dtype = at::kFloat;
  Node* narrow = graph.call("aten::to.dtype", {node->output(), c10::IValue(type)}, layer);
  narrow->scope = layer->scope;
  narrow->output()->meta = weight->meta;
  return made = narrow->output();
}

std::shared_ptr<graph::GraphModule> read_quantized_weights(
    const std::shared_ptr<graph::GraphModule>& captured,
    const std::map<std::string, StoredQuantizedWeight>& codes, graph::PassReport* report) {
  std::set<std::string> left;
  for (const auto& [name, one] : codes) left.insert(name);
  WeightCoder coder([&](const std::string& name, const at::Tensor& values) {
    const StoredQuantizedWeight& own = codes.at(own_name(name));
    if (own.codes.size(0) != values.size(0) || own.columns != values.size(1))
      fail(kReadWeightCodesWhere, "expected codes of ", values.sizes(), " for '", name, "', got ",
           own.codes.size(0), " rows of ", own.columns);
    return own;
  });
  auto module = rewrite_layers(captured,
                               {.where = kReadWeightCodesWhere,
                                .pass = "read_quantized_weights",
                                .wanted = "linear layer or embedding",
                                .done = "reads codes",
                                .ops = {"aten::linear", "aten::embedding"},
                                .skip_modules = {},
                                .products = true,
                                .refusal =
                                    [&](const Graph& graph, const Node& layer) {
                                      std::string why = coding_obstacle(graph, layer);
                                      if (why.empty() && !codes.contains(weight_name(layer)))
                                        why = "its weight has no codes";
                                      return why;
                                    },
                                .rewrite =
                                    [&](Graph& graph, Node* layer) {
                                      left.erase(weight_name(*layer));
                                      coder.rewrite(graph, layer);
                                    }},
                               report);
  if (!left.empty())
    fail(kReadWeightCodesWhere, "expected names of weights of linear layers and embeddings, got '",
         *left.begin(), "'");
  return module;
}

}  // namespace ulp::quant
