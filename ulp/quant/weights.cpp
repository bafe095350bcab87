#include "ulp/quant/weights.h"

#include <torch/utils.h>

#include <algorithm>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/quant/placement.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/round_trip.h"
#include "ulp/quant/skip_patterns.h"

namespace ulp::quant {
namespace {

using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kWhere = "quant.quantize_weights";

Scheme scheme_of(const WeightOptions& options) {
  if (options.bits == 8) return Recipe::x86_int8().weight.scheme;
  Scheme scheme{.bits = 4, .granularity = PerGroup{options.group}};
  if (!options.affine) {
    scheme.is_signed = true;
    scheme.mapping = Mapping::symmetric;
    scheme.range = Range::restricted;
  }
  return scheme;
}

/// Codes of 4 bits [rows, columns] -> two in a byte [rows, groups, size / 2]; what pads the last group is
/// zero.
at::Tensor pack(const at::Tensor& codes, const WeightOptions& options) {
  const int64_t groups = (codes.size(1) + options.group - 1) / options.group;
  const at::Tensor nibbles = options.affine ? codes : (codes.to(at::kShort) + 8).to(at::kByte);
  const at::Tensor whole = at::constant_pad_nd(nibbles, {0, groups * options.group - codes.size(1)});
  const at::Tensor pairs = whole.view({codes.size(0), groups, options.group / 2, 2});
  return pairs.select(3, 0).bitwise_or(pairs.select(3, 1).bitwise_left_shift(4)).contiguous();
}

class Quantizer {
 public:
  Quantizer(Graph& graph, const WeightOptions& options, graph::PassReport& report)
      : graph_(graph), options_(options), report_(report) {}

  void run() {
    std::vector<Node*> layers;
    for (const auto& node : graph_.nodes()) {
      if (node->is("aten::linear") || (options_.embeddings && node->is("aten::embedding"))) {
        layers.push_back(node.get());
      }
    }
    for (Node* layer : layers) {
      const std::string why = refusal(*layer);
      if (!why.empty()) {
        report_.near_misses.push_back(describe(*layer) + " stays in float: " + why);
        continue;
      }
      layer->arg("weight") = decoded(layer);
      report_.changes.push_back(describe(*layer) + " reads weights of " + std::to_string(options_.bits) +
                                " bits");
    }
  }

 private:
  std::string refusal(const Node& layer) const {
    if (is_skipped(layer, options_.skip_modules)) return "skipped by name";
    const at::Tensor weight = graph_.attribute_tensor(layer.arg("weight").value);
    return weight.defined() && weight.dim() == 2 ? "" : "its weight is computed";
  }

  Value* buffer(const std::string& name, const at::Tensor& tensor) {
    graph_.set_attribute(name, {Attribute::Kind::buffer, tensor});
    return graph_.attribute(name);
  }

  /// The node that reads the codes, one for all layers that share a weight.
  Value* decoded(Node* layer) {
    const Value* weight = layer->arg("weight").value;
    Value*& made = decoded_[weight];
    if (made != nullptr) return made;
    const at::NoGradGuard no_grad;
    const std::string name = weight->producer->target();
    const at::Tensor values = graph_.attribute_tensor(weight).detach();
    if (!at::isfinite(values).all().item<bool>()) {
      fail(kWhere, "expected finite weights in '", name, "', got NaN or infinite values");
    }
    const QParams params = qparams_of(values, scheme_of(options_));
    const at::Tensor codes = quantize(values, params);
    const bool nibbles = options_.bits == 4;
    graph::Argument zero = c10::IValue();
    if (nibbles && options_.affine) zero = buffer(name + ".zero_point", params.zero_point.to(at::kByte));
    Node* node =
        graph_.call("ulp::dequantize_weight",
                    {buffer(name + (nibbles ? ".int4" : ".int8"), nibbles ? pack(codes, options_) : codes),
                     buffer(name + ".scale", params.scale), zero, c10::IValue(values.size(1))},
                    layer);
    node->scope = layer->scope;
    node->output()->meta = weight->meta;
    return made = node->output();
  }

  Graph& graph_;
  const WeightOptions& options_;
  graph::PassReport& report_;
  std::unordered_map<const Value*, Value*> decoded_;
};

}  // namespace

void WeightOptions::validate() const {
  if (bits != 8 && bits != 4) fail(kWhere, "expected bits 8 or 4, got ", bits);
  if (bits == 4 && (group < 2 || group % 2 != 0)) fail(kWhere, "expected an even group, got ", group);
  if (bits == 8 && affine) fail(kWhere, "expected affine with 4 bits only");
}

WeightOptions weight_options(const Recipe& recipe) {
  Recipe plain = Recipe::weight_only();
  plain.weight.scheme = recipe.weight.scheme;
  plain.skip_modules = recipe.skip_modules;
  if (!(recipe == plain)) {
    fail(kWhere, "expected a recipe of weight_only with weight.scheme and skip_modules alone, got one of ",
         to_string(recipe.backend), recipe.backend == Backend::weight_only ? " with other fields" : "");
  }
  const Scheme& scheme = recipe.weight.scheme;
  WeightOptions options{.skip_modules = recipe.skip_modules};
  if (const auto* group = std::get_if<PerGroup>(&scheme.granularity)) {
    options.bits = 4;
    options.group = group->size;
    options.affine = scheme.mapping == Mapping::affine;
  }
  if (!(scheme == scheme_of(options))) {
    fail(kWhere,
         "expected weights s8 symmetric restricted per channel 0, s4 symmetric restricted per group or u4 "
         "affine "
         "per group, got ",
         scheme.to_string());
  }
  options.validate();
  return options;
}

std::shared_ptr<graph::GraphModule> quantize_weights(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const WeightOptions& options,
                                                     graph::PassReport* report) {
  if (!captured) fail(kWhere, "expected a captured model, got null");
  options.validate();
  const std::shared_ptr<Graph> graph = captured->graph().clone();
  graph::PassReport result;
  result.pass = "quantize_weights";
  for (const auto pass : {graph::canonicalize, graph::strip_training, graph::fold_batch_norm}) pass(*graph);
  check_skip_patterns(kWhere, *graph, options.skip_modules);
  Quantizer(*graph, options, result).run();
  if (result.changes.empty()) {
    fail(kWhere, "expected at least one linear layer or embedding with a stored weight, got none",
         result.near_misses.empty() ? "" : "; " + result.near_misses.front());
  }
  graph->remove_dead(/*attributes=*/true);
  auto module = std::make_shared<graph::GraphModule>(graph);
  module->eval();
  if (report) *report = std::move(result);
  return module;
}

}  // namespace ulp::quant
