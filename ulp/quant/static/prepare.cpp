#include <torch/types.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/graph/passes/transposed_phases.h"
#include "ulp/quant/backend.h"
#include "ulp/quant/observers/observer.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/static/inference_form.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

/// Every pattern must be about something that the model has.
void check_patterns(const Graph& graph, const Recipe& recipe) {
  const auto expect_any = [&](const char* field, const std::string& pattern, const auto& matches) {
    const auto named = [&](const auto& node) { return matches(op_name(*node)); };
    if (std::any_of(graph.nodes().begin(), graph.nodes().end(), named)) return;
    fail("quant.prepare", "expected ", field, " of the model, got '", pattern, "'");
  };
  for (const std::string& pattern : recipe.skip_modules) {
    expect_any("skip_modules to name modules", pattern,
               [&](const OpName& name) { return matches_module(pattern, name.module); });
  }
  for (const std::string& value : recipe.skip_values) {
    expect_any("skip_values to name values", value, [&](const OpName& name) { return name.value == value; });
  }
  for (const Override& rule : recipe.overrides) {
    if (rule.module.empty() && rule.value.empty()) continue;
    expect_any("overrides to name ops", rule.module.empty() ? rule.value : rule.module,
               [&](const OpName& name) { return rule.matches(name); });
  }
}

/// TensorFlow Lite's concatenation takes operands of its result's scale and zero point only.
void check_cats(const Annotation& placement) {
  std::unordered_map<const Value*, const Value*> origins;
  for (const Value* value : placement.observed) origins.emplace(value, value);
  for (const auto& [value, origin] : placement.sharing) origins.emplace(value, origin);
  const auto root = [&](const Value* value) {
    while (origins.at(value) != value) value = origins.at(value);
    return value;
  };
  for (const auto& [result, origin] : origins) {
    if (!result->producer->is("aten::cat")) continue;
    for (const graph::Argument& operand : result->producer->args[0].items) {
      if (root(operand.value) == root(result)) continue;
      fail("quant.prepare", "'", graph::label(*result->producer),
           "': tflite_int8 takes operands of one scale, got '", label_of(*operand.value, placement),
           "', which other ops read, too, with its own");
    }
  }
}

void check_backend(const Annotation& placement, const Recipe& recipe) {
  if (recipe.backend == Backend::tflite_int8) check_cats(placement);
  const auto expect = [](const std::string& what, const std::string& obstacle) {
    if (!obstacle.empty()) fail("quant.prepare", "'", what, "': ", obstacle);
  };
  for (const Value* value : placement.observed) {
    const OpName name = op_name(producer_of(*value, placement));
    expect(label_of(*value, placement),
           activation_obstacle(recipe.backend, name, recipe.activation_of(name)));
  }
  for (const Chain& chain : placement.chains) {
    if (has_weight(*chain.op)) {
      expect(graph::label(*chain.op), weight_obstacle(recipe.backend, recipe.weight_of(op_name(*chain.op))));
    }
  }
}

void insert_observer(Graph& graph, Value* value, const TensorRecipe& recipe, const std::string& label) {
  const std::string module = observer_name(value->name);
  graph.modules()[module] = make_observer(recipe, label);
  Node* observer = graph.call_module(module, value, first_reader_place(graph, value));
  graph.replace_uses(value, observer->output(), observer);
}

}  // namespace

std::string label_of(const Value& value, const Annotation& placement) {
  for (const Chain& chain : placement.chains) {
    if (chain.result() == &value) return graph::label(*chain.op);
  }
  return value.name;
}

std::shared_ptr<Graph> inference_graph(const Graph& captured, std::vector<std::string>* near_misses) {
  std::shared_ptr<Graph> graph = captured.clone();
  for (const auto pass :
       {graph::fold_masks, graph::canonicalize, graph::strip_training, graph::fold_batch_norm}) {
    const graph::PassReport one = pass(*graph);
    if (near_misses) near_misses->insert(near_misses->end(), one.near_misses.begin(), one.near_misses.end());
  }
  return graph;
}

namespace {

using Names = std::set<std::string>;

/// The name of the transposed convolution that a convolution of its phases stands for.
std::string whole_name(const graph::Node& conv) {
  const std::string name = conv.name();
  return name.substr(0, name.rfind(graph::kPhasesSuffix));
}

/// Transposed convolutions, but for those of these names, as ordinary ones; gives the names of those.
Names phases_in(Graph& graph, const Names& whole) {
  Names taken;
  const std::vector<const char*> ops = {"aten::conv_transpose1d", "aten::conv_transpose2d",
                                        "aten::conv_transpose3d"};
  graph::transposed_as_conv(graph, ops, [&](const graph::Node& node) {
    const bool takes = !whole.contains(node.name());
    if (takes) taken.insert(node.name());
    return takes;
  });
  return taken;
}

/// A training graph computes transposed convolutions in phases where they are quantized, and only there.
InferenceForm training_form(const Graph& inferring, const Recipe& recipe,
                            const std::set<std::string>& untrained) {
  Names whole;
  while (true) {
    const std::shared_ptr<Graph> graph = inferring.clone();
    Names left = phases_in(*graph, whole);
    Annotation placement = annotate(*graph, recipe, untrained);
    for (const Chain& chain : placement.chains) left.erase(whole_name(*chain.op));
    if (left.empty()) return {graph, std::move(placement)};
    whole.merge(left);
  }
}

}  // namespace

InferenceForm inference_form(const Graph& captured, const Recipe& recipe, Purpose purpose) {
  recipe.validate();
  if (recipe.methods.any())
    fail("quant.prepare", "expected a recipe without methods, which quantize() runs with its data, got ",
         recipe.methods.method.front());
  std::vector<std::string> near_misses;
  std::shared_ptr<Graph> graph = inference_graph(captured, &near_misses);
  if (purpose == Purpose::conversion) {
    for (const auto pass : {graph::batch_norm_as_conv, graph::transposed_as_conv, graph::store_transposes}) {
      const graph::PassReport one = pass(*graph);
      near_misses.insert(near_misses.end(), one.near_misses.begin(), one.near_misses.end());
    }
  }
  check_patterns(*graph, recipe);
  std::set<std::string> untrained;
  for (const auto& node : captured.nodes()) {
    if (purpose == Purpose::training && node->eval_only) untrained.insert(node->name());
  }
  Annotation placement;
  if (purpose == Purpose::training && recipe.backend != Backend::binary) {
    InferenceForm form = training_form(*graph, recipe, untrained);
    graph = std::move(form.graph);
    placement = std::move(form.placement);
  } else {
    placement = annotate(*graph, recipe, untrained);
  }
  std::vector<std::string>& refused = placement.report.near_misses;
  if (placement.chains.empty() && recipe.backend != Backend::binary) {
    fail("quant.prepare", "expected at least one op that the recipe quantizes, got none",
         refused.empty() ? "" : "; " + refused.front());
  }
  check_backend(placement, recipe);
  refused.insert(refused.begin(), near_misses.begin(), near_misses.end());
  return {graph, std::move(placement), std::move(untrained)};
}

PreparedModule::PreparedModule(std::shared_ptr<Graph> graph, Recipe recipe, graph::PassReport report)
    : GraphModule(std::move(graph)), recipe_(std::move(recipe)), report_(std::move(report)) {}

std::shared_ptr<PreparedModule> prepare(const std::shared_ptr<graph::GraphModule>& captured,
                                        const Recipe& recipe) {
  if (!captured) fail("quant.prepare", "expected a captured model, got null");
  if (recipe.backend == Backend::binary)
    fail("quant.prepare",
         "expected a recipe whose ranges come from data; binary networks are trained: prepare_qat()");
  InferenceForm form = inference_form(captured->graph(), recipe, Purpose::conversion);
  const std::shared_ptr<Graph> graph = form.graph;
  Annotation& placement = form.placement;
  for (Value* value : placement.observed) {
    insert_observer(*graph, value, recipe.activation_of(op_name(producer_of(*value, placement))),
                    label_of(*value, placement));
  }
  auto prepared = std::make_shared<PreparedModule>(graph, recipe, std::move(placement.report));
  prepared->eval();
  return prepared;
}

}  // namespace ulp::quant
