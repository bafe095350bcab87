#include "ulp/amp/fp8/product_rewrite.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/glob.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::amp {

namespace {

using graph::Graph;
using graph::Node;

bool is_layer(const Node& node) {
  return node.is("aten::linear") || node.is("aten::conv1d") || node.is("aten::conv2d");
}

bool is_product(const Node& node) {
  return node.is("aten::matmul") || node.is("aten::mm");
}

bool is_stored(const graph::Argument& arg) {
  if (!arg.is_value()) return false;
  const Node& producer = *arg.value->producer;
  return producer.kind() == Node::Kind::attribute || graph::from_attributes(producer);
}

const graph::Argument& weight_of(const Node& node) {
  return is_product(node) ? node.args[1] : node.arg("weight");
}

/// A layer, or a product of something computed with something stored.
bool is_candidate(const Node& node) {
  return is_layer(node) || (is_product(node) && is_stored(node.args[1]) && !is_stored(node.args[0]));
}

/// Dimensions, or -1 where they are not known.
int64_t dims(const Graph& graph, const graph::Argument& arg) {
  const at::Tensor stored = arg.is_value() ? graph.attribute_tensor(arg.value) : at::Tensor();
  return stored.defined() ? stored.dim() : graph::rank(arg);
}

/// Why no rewrite could take the layer; empty where one could.
std::string obstacle(const Graph& graph, const Node& node) {
  const graph::Argument& weight = weight_of(node);
  if (!is_stored(weight)) return "its weight is computed from the inputs";
  if (is_product(node))
    return dims(graph, weight) == 2 && dims(graph, node.args[0]) >= 2 ? "" : "it is no product with a matrix";
  if (node.is("aten::linear")) return dims(graph, weight) == 2 ? "" : "its weight is no matrix";
  if (!graph::integers(node.arg("padding"))) return "its padding is a word";
  return dims(graph, node.args[0]) == dims(graph, weight) ? "" : "its input has no batch dimension";
}

/// Of its module, or its own name.
const std::string& path_of(const Node& node) {
  return node.scope.empty() ? node.name() : node.scope;
}

ProductLayer layer_of(Graph& graph, Node* node) {
  ProductLayer layer{.node = node, .path = path_of(*node)};
  layer.input = node->args[0].value;
  layer.convolution = !is_product(*node) && !node->is("aten::linear");
  layer.weight = weight_of(*node).value;
  if (is_product(*node)) {
    layer.weight = graph.call("aten::t", {layer.weight}, node)->output();
  } else {
    layer.bias = node->arg("bias");
  }
  return layer;
}

void check_patterns(const char* where, const Graph& graph, const char* field,
                    const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const auto in_pattern = [&](const auto& node) { return matches_path(pattern, path_of(*node)); };
    if (std::ranges::none_of(graph.nodes(), in_pattern))
      fail(where, "expected ", field, " to name modules of the model, got '", pattern, "'");
  }
}

}  // namespace

std::shared_ptr<graph::GraphModule> rewrite_products(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const ProductSelection& selection,
                                                     const ProductRewrite& how, graph::PassReport* report) {
  if (!captured) fail(how.where, "expected a captured model, got null");
  const std::shared_ptr<Graph> graph = captured->graph().clone();
  graph::canonicalize(*graph);
  check_patterns(how.where, *graph, "skip_modules", selection.skip_modules);
  check_patterns(how.where, *graph, "overrides", how.overrides);
  graph::PassReport result{how.pass, {}, {}};
  std::vector<Node*> nodes;
  for (const auto& node : graph->nodes()) {
    if (is_candidate(*node)) nodes.push_back(node.get());
  }
  for (Node* node : nodes) {
    const std::string name = graph::label(*node);
    const auto skips = [&](const std::string& pattern) { return matches_path(pattern, node->scope); };
    std::string why =
        std::ranges::any_of(selection.skip_modules, skips) ? "skipped by name" : obstacle(*graph, *node);
    if (node == nodes.front() && !selection.first)
      why = "it is the first layer (the recipe says first: false)";
    if (node == nodes.back() && !selection.last) why = "it is the last layer (the recipe says last: false)";
    if (why.empty()) {
      const ProductLayer layer = layer_of(*graph, node);
      if (how.refusal) why = how.refusal(*graph, layer);
      if (why.empty()) how.rewrite(*graph, layer);
    }
    if (why.empty()) {
      result.changes.push_back(name + ' ' + how.done);
    } else {
      result.near_misses.push_back(name + " stays as it is: " + why);
    }
  }
  if (!result.changed()) {
    fail(how.where, "expected at least one layer to replace, got none",
         result.near_misses.empty() ? "" : "; " + result.near_misses.front());
  }
  graph->remove_dead();
  auto module = std::make_shared<graph::GraphModule>(graph, captured->notes());
  module->train(captured->is_training());
  if (report != nullptr) *report = std::move(result);
  return module;
}

}  // namespace ulp::amp
