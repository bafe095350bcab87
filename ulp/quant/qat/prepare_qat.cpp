#include <torch/types.h>

#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/graph/passes/transposed_phases.h"
#include "ulp/quant/binary/insert_binary.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/qat/qat_parts.h"
#include "ulp/quant/static/inference_form.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

std::string module_name(const char* prefix, std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return prefix + name;
}

// A value that is on the grid of its input's parameters already, whatever the op.
bool stays_on_grid(const Node& node) {
  return is_any(node, {"aten::max_pool1d", "aten::max_pool2d", "aten::flatten", "aten::view", "aten::reshape",
                       "aten::channel_shuffle", "aten::chunk", "aten::split", "aten::split_with_sizes",
                       "aten::slice", "aten::narrow", "aten::upsample_nearest2d", "ulp::depth_to_space"}) ||
         graph::activation_of(node) == Activation::relu;
}

// Puts quantizers into a graph that trains, at the places that its inference form has.
class QatBuilder {
 public:
  QatBuilder(Graph& graph, const InferenceForm& form, QatParts& parts, const QatOptions& options)
      : graph_(graph), form_(form), parts_(parts), options_(options) {
    for (const auto& node : graph_.nodes()) {
      for (const auto& output : node->outputs()) values_[output->name] = output.get();
    }
    for (const auto& node : form_.graph->nodes()) kept_[node->name()] = node.get();
  }

  void run() {
    for (const Chain& chain : form_.placement.chains) {
      if (has_weight(*chain.op)) find_norm(*chain.op);
    }
    for (Value* value : form_.placement.observed) observe(*value);
    for (const auto& [value, origin] : form_.placement.sharing) share(*value, *origin);
    for (const Chain& chain : form_.placement.chains) {
      if (has_weight(*chain.op)) replace_layer(*chain.op);
    }
    replace_norms();
    graph_.remove_dead();
  }

 private:
  /// The training graph has transposed convolutions whole, and clamps behind them.
  Value* training_value(const Value& kept) const {
    const auto found = values_.find(kept.name);
    if (found != values_.end()) return found->second;
    return values_.at(kept.name.substr(0, kept.name.rfind(graph::kPhasesSuffix)));
  }
  Node* training_node(const Node& kept) const { return training_value(*kept.output())->producer; }

  // The batch norm that folding put into the layer.
  void find_norm(const Node& layer) {
    Node* own = training_node(layer);
    Node* next = graph::sole_user(graph_, *own);
    if (next && next->is("aten::batch_norm") && !kept_.contains(next->name())) norms_[own] = next;
  }

  // The value of the training graph that is this one of the inference form.
  Value* find(const Value& kept) const {
    Value* own = training_value(kept);
    const auto norm = norms_.find(own->producer);
    return norm == norms_.end() ? own : norm->second->output();
  }

  void insert(Value* value, const std::string& name, std::shared_ptr<libtorch::TensorModule> module) {
    graph_.modules()[name] = std::move(module);
    Node* node = graph_.call_module(name, value, first_reader_place(graph_, value));
    node->scope = value->producer->scope;
    graph_.replace_uses(value, node->output(), node);
  }

  void observe(const Value& kept) {
    const TensorRecipe& how = parts_.recipe.activation_of(op_name(producer_of(kept, form_.placement)));
    auto quantizer =
        std::make_shared<ActivationQuantizer>(label_of(kept, form_.placement), how, options_, parts_.state);
    parts_.activations[kept.name] = quantizer;
    quantizers_[&kept] = quantizer;
    insert(find(kept), module_name("quantizer_", kept.name), quantizer);
  }

  void share(const Value& kept, const Value& origin) {
    quantizers_[&kept] = quantizers_.at(&origin);
    // What a cat reads takes the parameters of its result, which is quantized with them: once is enough.
    const bool read_by_origin = kept.producer->args[0].value != &origin;
    if (stays_on_grid(*kept.producer) || read_by_origin) return;
    insert(find(kept), module_name("quantizer_", kept.name),
           std::make_shared<SharingQuantizer>(quantizers_.at(&origin)));
  }

  void replace_layer(const Node& kept) {
    Node* own = training_node(kept);
    const auto norm = norms_.find(own);
    std::optional<BatchNormState> state;
    if (norm != norms_.end()) state = take_batch_norm(graph_, *norm->second);
    auto layer = std::make_shared<QatLayer>(graph::label(kept), LayerCall(graph_, *own), std::move(state),
                                            parts_.recipe.weight_of(op_name(kept)), options_, parts_.state,
                                            quantizers_.at(kept.args[0].value));
    const std::string name = module_name("qat_", kept.name());
    parts_.layers[kept.name()] = layer;
    graph_.modules()[name] = layer;
    Node* node = graph_.call_module(name, own->args[0].value, own);
    node->scope = own->scope;
    Node* last = state_of(norm, own);
    node->output()->meta = last->output()->meta;
    graph_.replace_uses(last->output(), node->output());
    if (last != own) graph_.erase(last);
    graph_.erase(own);
  }
  template <typename Iterator>
  Node* state_of(Iterator norm, Node* own) const {
    return norm == norms_.end() ? own : norm->second;
  }

  // Those that no quantized layer took.
  void replace_norms() {
    std::vector<Node*> norms;
    for (const auto& node : graph_.nodes()) {
      if (node->is("aten::batch_norm") && is_freezable(graph_, *node)) norms.push_back(node.get());
    }
    for (Node* norm : norms) {
      const std::string name = module_name("norm_", norm->name());
      graph_.modules()[name] =
          std::make_shared<FreezableBatchNorm>(take_batch_norm(graph_, *norm), parts_.state);
      Node* node = graph_.call_module(name, norm->args[0].value, norm);
      node->scope = norm->scope;
      node->output()->meta = norm->output()->meta;
      graph_.replace_uses(norm->output(), node->output());
      graph_.erase(norm);
    }
  }

  Graph& graph_;
  const InferenceForm& form_;
  QatParts& parts_;
  const QatOptions& options_;
  std::unordered_map<std::string, Value*> values_;     // of the training graph
  std::unordered_map<std::string, const Node*> kept_;  // of the inference form
  std::unordered_map<const Node*, Node*> norms_;       // layer -> its batch norm
  std::unordered_map<const Value*, std::shared_ptr<ActivationQuantizer>> quantizers_;
};

}  // namespace

std::shared_ptr<QatModule> prepare_qat(const std::shared_ptr<graph::GraphModule>& captured,
                                       const Recipe& recipe, const QatOptions& options) {
  if (!captured) fail("quant.prepare_qat", "expected a captured model, got null");
  const std::shared_ptr<Graph> source = captured->graph().clone();
  graph::fold_masks(
      *source);  // layers hold weights, and those of the masks are one set for training and inference
  auto parts = std::make_unique<QatParts>();
  parts->recipe = recipe;
  parts->source = source;
  graph::PassReport binary;
  if (recipe.backend == Backend::binary) {
    recipe.validate();
    graph::canonicalize(*source);
    binary = insert_binary(*source, recipe, options.binary, parts->state);
  }
  InferenceForm form = inference_form(*source, recipe, Purpose::training);
  const std::shared_ptr<Graph> graph = source->clone();
  graph::canonicalize(*graph);
  QatBuilder(*graph, form, *parts, options).run();
  // Where a binary recipe names no ops, nothing else was to be quantized.
  if (recipe.backend != Backend::binary || !recipe.ops.empty()) {
    parts->report = std::move(form.placement.report);
  }
  parts->report.changes.insert(parts->report.changes.begin(), binary.changes.begin(), binary.changes.end());
  parts->report.near_misses.insert(parts->report.near_misses.begin(), binary.near_misses.begin(),
                                   binary.near_misses.end());
  auto module = std::make_shared<QatModule>(std::move(parts), graph);
  module->train();
  return module;
}

}  // namespace ulp::quant
