#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/quant/inference_form.h"
#include "ulp/quant/observer.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

void check_skip_patterns(const Graph& graph, const Recipe& recipe) {
  for (const std::string& pattern : recipe.skip_modules) {
    const auto in_pattern = [&](const auto& node) { return matches_module(pattern, node->scope); };
    if (std::none_of(graph.nodes().begin(), graph.nodes().end(), in_pattern)) {
      fail("quant.prepare", "expected skip_modules to name modules of the model, got '", pattern, "'");
    }
  }
}

void insert_observer(Graph& graph, Value* value, const Recipe& recipe, const std::string& label) {
  const std::string module = observer_name(value->name);
  graph.modules()[module] = make_observer(recipe.activation, label);
  Node* observer = graph.call_module(module, value, first_reader_place(graph, value));
  graph.replace_uses(value, observer->output(), observer);
}

}  // namespace

std::string label_of(const Value& value, const Placement& placement) {
  for (const Chain& chain : placement.chains) {
    if (chain.result() == &value) return describe(*chain.op);
  }
  return value.name;
}

InferenceForm inference_form(const Graph& captured, const Recipe& recipe) {
  recipe.validate();
  const std::shared_ptr<Graph> graph = captured.clone();
  std::vector<std::string> near_misses;
  for (const auto pass : {graph::canonicalize, graph::strip_training, graph::fold_batch_norm}) {
    const graph::PassReport one = pass(*graph);
    near_misses.insert(near_misses.end(), one.near_misses.begin(), one.near_misses.end());
  }
  check_skip_patterns(*graph, recipe);
  Placement placement = place(*graph, recipe);
  std::vector<std::string>& refused = placement.report.near_misses;
  if (placement.chains.empty()) {
    fail("quant.prepare", "expected at least one op that the recipe quantizes, got none",
         refused.empty() ? "" : "; " + refused.front());
  }
  refused.insert(refused.begin(), near_misses.begin(), near_misses.end());
  return {graph, std::move(placement)};
}

PreparedModule::PreparedModule(std::shared_ptr<Graph> graph, Recipe recipe, graph::PassReport report)
    : GraphModule(std::move(graph)), recipe_(std::move(recipe)), report_(std::move(report)) {}

std::shared_ptr<PreparedModule> prepare(const std::shared_ptr<graph::GraphModule>& captured,
                                        const Recipe& recipe) {
  if (!captured) fail("quant.prepare", "expected a captured model, got null");
  auto [graph, placement] = inference_form(captured->graph(), recipe);
  for (Value* value : placement.observed) insert_observer(*graph, value, recipe, label_of(*value, placement));
  auto prepared = std::make_shared<PreparedModule>(graph, recipe, std::move(placement.report));
  prepared->eval();
  return prepared;
}

}  // namespace ulp::quant
