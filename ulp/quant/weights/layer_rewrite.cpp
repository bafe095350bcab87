#include "ulp/quant/weights/layer_rewrite.h"

#include <algorithm>
#include <map>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/graph/passes/products_as_linear.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/static/annotation.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::Node;

void check_skip_patterns(const char* where, const Graph& graph, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const auto in_pattern = [&](const auto& node) { return matches_module(pattern, node->scope); };
    if (std::ranges::none_of(graph.nodes(), in_pattern)) {
      fail(where, "expected skip_modules to name modules of the model, got '", pattern, "'");
    }
  }
}

bool is_skipped(const Node& node, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns,
                             [&](const auto& pattern) { return matches_module(pattern, node.scope); });
}

/// Parameters of 16 bits that are left are no longer those of the model: to() of one of both would leave the
/// other with two types.
void copy_narrow_parameters(Graph& graph) {
  const at::NoGradGuard no_grad;
  std::map<const c10::TensorImpl*, at::Tensor> copies;
  std::vector<std::pair<std::string, graph::Attribute>> attributes = graph.attributes();
  for (auto& [name, attribute] : attributes) {
    if (!attribute.tensor.is_floating_point() || attribute.tensor.element_size() != 2) continue;
    at::Tensor& copy = copies[attribute.tensor.unsafeGetTensorImpl()];
    if (!copy.defined())
      copy = attribute.tensor.detach().clone().set_requires_grad(attribute.tensor.requires_grad());
    graph.set_attribute(name, {attribute.kind, copy});
  }
}

}  // namespace

std::shared_ptr<Graph> layers_graph(const std::shared_ptr<graph::GraphModule>& captured,
                                    const LayerRewrite& how) {
  if (!captured) fail(how.where, "expected a captured model, got null");
  const std::shared_ptr<Graph> graph = captured->graph().clone();
  for (const auto pass :
       {graph::fold_masks, graph::canonicalize, graph::strip_training, graph::fold_batch_norm})
    pass(*graph);
  if (how.products) graph::products_as_linear(*graph);
  graph::store_transposes(*graph);
  check_skip_patterns(how.where, *graph, how.skip_modules);
  return graph;
}

std::vector<Node*> layers_of(const Graph& graph, const LayerRewrite& how, std::vector<std::string>& refused) {
  std::vector<Node*> layers;
  for (const auto& node : graph.nodes()) {
    const auto is_op = [&](const std::string& op) { return node->is(op); };
    if (std::ranges::none_of(how.ops, is_op)) continue;
    const std::string why =
        is_skipped(*node, how.skip_modules) ? "skipped by name" : how.refusal(graph, *node);
    if (why.empty()) {
      layers.push_back(node.get());
    } else {
      refused.push_back(graph::label(*node) + " stays in float: " + why);
    }
  }
  return layers;
}

std::shared_ptr<graph::GraphModule> rewrite_layers(const std::shared_ptr<Graph>& graph,
                                                   const LayerRewrite& how, graph::PassReport* report) {
  graph::PassReport result;
  result.pass = how.pass;
  for (Node* layer : layers_of(*graph, how, result.near_misses)) {
    // Rewriting takes the op away that the label follows from.
    const std::string name = graph::label(*layer), remark = how.remark ? how.remark(*layer) : "";
    how.rewrite(*graph, layer);
    result.changes.push_back(name + " " + how.done + remark);
  }
  if (result.changes.empty()) {
    fail(how.where, "expected at least one ", how.wanted, " with a stored weight, got none",
         result.near_misses.empty() ? "" : "; " + result.near_misses.front());
  }
  graph->remove_dead(/*attributes=*/true);
  copy_narrow_parameters(*graph);
  auto module = std::make_shared<graph::GraphModule>(graph);
  module->eval();
  if (report) *report = std::move(result);
  return module;
}

std::shared_ptr<graph::GraphModule> rewrite_layers(const std::shared_ptr<graph::GraphModule>& captured,
                                                   const LayerRewrite& how, graph::PassReport* report) {
  return rewrite_layers(layers_graph(captured, how), how, report);
}

}  // namespace ulp::quant
