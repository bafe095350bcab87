#include "ulp/quant/weights/weight_trials.h"

#include <torch/utils.h>

#include <algorithm>
#include <set>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/quant/weights/layer_inputs.h"
#include "ulp/quant/weights/weight_coder.h"

namespace ulp::quant {
namespace {

using graph::GraphModule;
using graph::Node;
using graph::Value;

int64_t bytes_of(const StoredQuantizedWeight& stored) {
  size_t bytes = stored.codes.nbytes() + stored.scale.nbytes();
  if (stored.zero_point) bytes += stored.zero_point->nbytes();
  if (stored.minimum) bytes += stored.minimum->nbytes();
  return static_cast<int64_t>(bytes);
}

/// An input that is stored does not follow the data.
bool reads_computed(const Node& layer) {
  const graph::Argument& input = layer.arg("input");
  return input.is_value() && input.value->producer->kind() != Node::Kind::attribute;
}

/// Whether two recipes make the same codes of a weight.
bool makes_same(const WeightOnlyRecipe& a, const WeightOnlyRecipe& b) {
  WeightOnlyRecipe one = a;
  one.group = a.bits == 8 ? b.group : a.group;
  return one == b;
}

}  // namespace

WeightTrials::WeightTrials(const std::shared_ptr<GraphModule>& captured,
                           const std::vector<WeightOnlyRecipe>& recipes) {
  const LayerRewrite how = weights_rewrite(recipes.front());
  graph_ = layers_graph(captured, how);
  std::vector<std::string> refused;
  const std::vector<Node*> layers = layers_of(*graph_, how, refused);
  if (layers.empty())
    fail(how.where, "expected at least one ", how.wanted, " with a stored weight, got none",
         refused.empty() ? "" : "; " + refused.front());
  std::vector<WeightRecipes> all;
  for (const WeightOnlyRecipe& recipe : recipes) all.push_back(recipes_of(layers, recipe));
  std::set<const Value*> seen;
  for (const Node* layer : layers) {
    const Value* weight = layer->arg("weight").value;
    if (!seen.insert(weight).second) continue;
    Unit& unit = units_.emplace_back(Unit{graph::label(*layer), weight_name(*layer), {}, {}});
    layers_.push_back(layer);
    recipes_.emplace_back();
    const at::Tensor values = graph_->attribute_tensor(weight).detach().to(at::kFloat);
    for (const WeightRecipes& of_weights : all) {
      WeightOnlyRecipe own = of_weights.at(weight);
      if (needs_data(own.method) && !reads_computed(*layer)) own.method = WeightMethod::rtn;
      recipes_.back().push_back(own);
      const int64_t scales = own.method == WeightMethod::awq ? values.size(1) * int64_t{sizeof(float)} : 0;
      if (needs_data(own.method)) own.method = WeightMethod::rtn;
      unit.bytes.push_back(bytes_of(rounded_codes(unit.name, values, own)));
      unit.scale_bytes.push_back(scales);
    }
  }
  float_model_ = std::make_shared<GraphModule>(graph_->clone());
  float_model_->eval();
}

bool WeightTrials::by_data(size_t unit) const {
  return std::ranges::any_of(recipes_[unit], [](const auto& recipe) { return needs_data(recipe.method); });
}

void WeightTrials::run(const CalibrationData& data, Try use) {
  const at::NoGradGuard no_grad;
  LayerInputs inputs(*graph_, data, recipes_.front().front().recompute);
  const Value* known = nullptr;
  SecondMoments moments;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const Node& layer = *layers_[unit];
    if (by_data(unit) && layer.arg("input").value != known) {
      moments = {};
      inputs.look(layer, [&](const at::Tensor& x) { moments.add(x, units_[unit].layer); });
      if (moments.rows == 0)
        fail("quant.quantize_weights", "expected rows of calibration data for '", units_[unit].layer,
             "', got none");
      known = layer.arg("input").value;
    }
    try_unit(unit, moments, use);
  }
}

void WeightTrials::try_unit(size_t unit, const SecondMoments& moments, Try use) const {
  const std::vector<WeightOnlyRecipe>& recipes = recipes_[unit];
  const Value* weight = layers_[unit]->arg("weight").value;
  const std::string name = weight->producer->target();
  for (size_t k = 0; k < recipes.size(); ++k) {
    std::vector<size_t> same;
    for (size_t other = 0; other < recipes.size(); ++other) {
      if (makes_same(recipes[k], recipes[other])) same.push_back(other);
    }
    if (same.front() < k) continue;
    const std::shared_ptr<graph::Graph> graph = graph_->clone();
    const graph::Attribute before = *graph->find_attribute(name);
    graph->set_attribute(name,
                         {before.kind, values(unit, recipes[k], moments).to(before.tensor.scalar_type())});
    GraphModule model(graph);
    model.eval();
    use(units_[unit], same, k, model);
  }
}

at::Tensor WeightTrials::values(size_t unit, const WeightOnlyRecipe& recipe,
                                const SecondMoments& moments) const {
  const at::Tensor weight =
      graph_->attribute_tensor(layers_[unit]->arg("weight").value).detach().to(at::kFloat);
  if (recipe.method == WeightMethod::gptq) {
    const at::Tensor made = gptq_codes(weight, moments.hessian, recipe, units_[unit].layer).values();
    const at::Tensor plain = rtn_codes(weight, recipe).values();
    const auto error = [&](const at::Tensor& one) { return output_error(one - weight, moments.hessian); };
    return error(made) > error(plain) ? plain : made;
  }
  if (recipe.method == WeightMethod::awq) {
    const AwqScales scales = awq_scales({weight}, moments, {recipe});
    const at::Tensor inverse = scales.scale.to(at::kDouble).reciprocal();
    const at::Tensor hessian = moments.hessian * inverse.unsqueeze(1) * inverse;
    return awq_codes(weight * scales.scale, hessian, recipe).values() / scales.scale;
  }
  return dequantize_weight(rounded_codes(units_[unit].name, weight, recipe));
}

}  // namespace ulp::quant
