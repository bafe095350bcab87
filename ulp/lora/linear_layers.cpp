#include "ulp/lora/linear_layers.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/graph/passes/pattern.h"

namespace ulp::lora {

namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

std::string path_of_weight(const std::string& name, const Node& layer) {
  const std::string end = ".weight";
  if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  return layer.scope.empty() ? name : layer.scope;
}

/// What reads the attribute otherwise than this layer's calls and the turns before them.
const Node* other_reader(const Graph& graph, const Value* weight, const LinearLayer& layer) {
  const auto is_own = [&](const Node* node) {
    return std::ranges::find(layer.nodes, node) != layer.nodes.end();
  };
  for (const Node* user : graph.users(weight)) {
    if (layer.transposed && user->is("aten::t")) {
      for (const Node* reader : graph.users(user->output()))
        if (!is_own(reader)) return reader;
    } else if (!is_own(user)) {
      return user;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<LinearLayer> linear_layers(const Graph& graph) {
  std::vector<LinearLayer> layers;
  std::vector<const Value*> weights;
  for (const auto& node : graph.nodes()) {
    if (!node->is("aten::linear") || !node->arg("weight").is_value()) continue;
    const Value* weight = node->arg("weight").value;
    const Node* turn = graph::producer(node->arg("weight"), "aten::t");
    if (turn != nullptr && turn->args[0].is_value()) weight = turn->args[0].value;
    const at::Tensor stored = graph.attribute_tensor(weight);
    if (!stored.defined() || stored.dim() != 2) continue;
    const std::string& name = weight->producer->target();
    LinearLayer layer{.path = path_of_weight(name, *node), .weight = name};
    const auto same = [&](const LinearLayer& one) {
      return one.weight == name && one.transposed == (turn != nullptr);
    };
    const auto found = std::ranges::find_if(layers, same);
    if (found != layers.end()) {
      layer = *found;
      weights.erase(weights.begin() + (found - layers.begin()));
      layers.erase(found);
    }
    layer.nodes.push_back(node.get());
    layer.transposed = turn != nullptr;
    layer.out = stored.size(turn != nullptr ? 1 : 0);
    layer.in = stored.size(turn != nullptr ? 0 : 1);
    layers.push_back(std::move(layer));
    weights.push_back(weight);
  }
  for (size_t i = 0; i < layers.size(); ++i)
    layers[i].other_reader = other_reader(graph, weights[i], layers[i]);
  return layers;
}

}  // namespace ulp::lora
