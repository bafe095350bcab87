#include "ulp/quant/binary/insert_binary.h"

#include <torch/types.h>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/quant/binary/binary_form.h"
#include "ulp/quant/binary/binary_scale.h"
#include "ulp/quant/static/annotation.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::Node;

bool is_candidate(const Node& node) {
  return node.is("aten::conv1d") || node.is("aten::conv2d") || node.is("aten::linear");
}

/// A convolution whose window is one pixel.
bool is_pointwise_conv(const Graph& graph, const Node& node) {
  if (node.is("aten::linear")) return false;
  const at::Tensor weight = graph.attribute_tensor(node.arg("weight").value);
  return weight.numel() == weight.size(0) * weight.size(1);
}

/// Why the layer stays as it is; empty where it becomes binary.
std::string obstacle(const Graph& graph, const Node& node, const Recipe& recipe,
                     const BinaryOptions& options) {
  const OpName name = op_name(node);
  if (recipe.skips(name)) return "the recipe skips it";
  if (&recipe.weight_of(name) != &recipe.weight) return "an override gives its weight another form";
  const std::string stands = layer_obstacle(graph, node);
  if (!stands.empty()) return stands;
  if (!options.shortcuts && is_pointwise_conv(graph, node)) return "its window is one pixel";
  if (!options.layers.activation_scale || node.is("aten::linear")) return "";
  const at::Tensor weight = graph.attribute_tensor(node.arg("weight").value);
  return box_obstacle(weight.sizes().slice(2), graph::integers(node.arg("padding")).value(),
                      graph::integers(node.arg("dilation")).value());
}

/// The layers that something could make binary, in order of execution.
std::vector<Node*> layers_of(const Graph& graph) {
  std::vector<Node*> found;
  for (const auto& node : graph.nodes()) {
    if (is_candidate(*node) && node->arg("weight").is_value()) found.push_back(node.get());
  }
  return found;
}

}  // namespace

graph::PassReport insert_binary(Graph& graph, const Recipe& recipe, const BinaryOptions& options,
                                const std::shared_ptr<const QatState>& state) {
  graph::PassReport report{"binarize", {}, {}};
  const std::vector<Node*> layers = layers_of(graph);
  for (Node* layer : layers) {
    const std::string label = graph::label(*layer);
    std::string why = obstacle(graph, *layer, recipe, options);
    if (layer == layers.front() && !options.first) why = "it is the first layer";
    if (layer == layers.back() && !options.last) why = "it is the last layer";
    if (!why.empty()) {
      report.near_misses.push_back(label + " not made binary: " + why);
      continue;
    }
    write_binary_form(graph, *layer, options.layers, state);
    report.changes.push_back(label + (options.layers.ternary ? " made ternary" : " made binary"));
  }
  if (!report.changed()) {
    fail("quant.prepare_qat", "expected at least one layer to make binary, got none",
         report.near_misses.empty() ? "" : "; " + report.near_misses.front());
  }
  graph.remove_dead();
  return report;
}

}  // namespace ulp::quant
