#include "ulp/quant/weights/calibrated_weights.h"

#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <unordered_map>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/quant/weights/input_scales.h"
#include "ulp/quant/weights/layer_inputs.h"
#include "ulp/quant/weights/mixed_precision.h"
#include "ulp/quant/weights/rotated_first.h"
#include "ulp/quant/weights/round_to_nearest.h"
#include "ulp/quant/weights/second_moments.h"
#include "ulp/quant/weights/weight_coder.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kCalibratedWhere = "quant.quantize_weights";

std::string weight_of(const Node& layer) {
  return layer.arg("weight").value->producer->target();
}

/// Layers that read one value, and what scales it.
struct InputGroup {
  std::vector<Node*> layers;
  at::Tensor scale = {};  ///< awq; undefined: 1
};

class CalibratedCoder {
 public:
  CalibratedCoder(Graph& graph, const WeightOnlyRecipe& recipe, const std::vector<Node*>& layers)
      : graph_(graph), recipe_(recipe), tables_(tables_of(layers)), recipes_(recipes_of(layers, recipe)) {
    std::map<std::pair<const Value*, bool>, size_t> known;
    for (Node* layer : layers) {
      const Value* weight = layer->arg("weight").value;
      ++readers_[weight];
      const bool is_first = firsts_.emplace(weight, layer).second;
      if (is_first) order_.push_back(weight);
      if (!is_first || !by_data(*layer)) continue;
      const bool is_awq = own(weight).method == WeightMethod::awq;
      const auto [place, is_new] =
          known.emplace(std::pair(layer->arg("input").value, is_awq), groups_.size());
      if (is_new) groups_.emplace_back();
      groups_[place->second].layers.push_back(layer);
    }
  }

  void run(const CalibrationData& data, const OnLayer& on_layer) {
    const at::NoGradGuard no_grad;
    if (!data) fail(kCalibratedWhere, "expected calibration data for ", methods(), ", got none");
    LayerInputs inputs(graph_, data, recipe_.recompute);
    round_others(inputs);
    int64_t done = 0;
    const auto total = static_cast<int64_t>(groups_.size());
    for (InputGroup& group : groups_) {
      const std::string layer = graph::label(*group.layers.front());
      if (on_layer) on_layer(done, total, layer);
      SecondMoments moments;
      inputs.look(*group.layers.front(), [&](const at::Tensor& x) { moments.add(x, layer); });
      if (moments.rows == 0)
        fail(kCalibratedWhere, "expected rows of calibration data for '", layer, "', got none");
      code(group, moments, inputs);
      ++done;
    }
    if (on_layer) on_layer(done, total, "");
  }

  /// Puts the scales of inputs into the graph.
  void divide_inputs() {
    for (const InputGroup& group : groups_) {
      if (!group.scale.defined()) continue;
      const std::string where = divide_input(graph_, group.layers, group.scale, codes_);
      for (const Node* layer : group.layers)
        add_note(errors_.at(layer->arg("weight").value),
                 where.empty() ? "its input is multiplied by 1 / s" : "1 / s is in " + where);
    }
  }

  const StoredQuantizedWeight& codes(const std::string& weight) const { return codes_.at(weight); }

  std::string remark(const Node& layer) const {
    const Value* weight = layer.arg("weight").value;
    std::string text = ' ' + std::to_string(own(weight).bits) + " bits";
    const WeightError& error = errors_.at(weight);
    if (error.rows > 0) {
      char numbers[128];
      std::snprintf(numbers, sizeof numbers, ": error %.3g of its result, %.3g by plain rounding, %lld rows",
                    error.error, error.plain_error, static_cast<long long>(error.rows));
      text += numbers;
    } else {
      text += own(weight).method == WeightMethod::hqq ? ", by hqq" : ", rounded plainly";
    }
    return error.note.empty() ? text : text + ", " + error.note;
  }

  /// In order of execution.
  std::vector<WeightError> errors() const {
    std::vector<WeightError> all;
    for (const Value* weight : order_) all.push_back(errors_.at(weight));
    return all;
  }

 private:
  /// Whether data decide the layer's codes.
  bool by_data(const Node& layer) const {
    return needs_data(own(layer.arg("weight").value).method) && !reads_stored(layer);
  }

  /// "the method gptq", for messages.
  std::string methods() const {
    const bool is_gptq = recipe_.takes(WeightMethod::gptq), is_awq = recipe_.takes(WeightMethod::awq);
    if (is_gptq && is_awq) return "the methods gptq and awq";
    return std::string("the method ") + (is_gptq ? "gptq" : "awq");
  }

  static bool reads_stored(const Node& layer) {
    const graph::Argument& input = layer.arg("input");
    return !input.is_value() || input.value->producer->kind() == Node::Kind::attribute;
  }

  static void add_note(WeightError& error, const std::string& note) {
    if (!note.empty()) error.note += (error.note.empty() ? "" : ", ") + note;
  }

  const WeightOnlyRecipe& own(const Value* weight) const { return recipes_.at(weight); }

  at::Tensor values_of(const Value* weight) const {
    return graph_.attribute_tensor(weight).detach().to(at::kFloat);
  }

  WeightError& keep(const Node& layer, StoredQuantizedWeight codes) {
    const Value* weight = layer.arg("weight").value;
    const std::string name = weight_of(layer);
    WeightError& error = errors_[weight];
    error.layer = graph::label(layer);
    error.weight = name;
    error.columns = codes.columns;
    error.groups = codes.scale.numel() / codes.scale.size(0);
    codes_[name] = std::move(codes);
    return error;
  }

  /// Tables, layers of methods without data, and those whose input does not follow the data.
  void round_others(LayerInputs& inputs) {
    for (const auto& [weight, layer] : firsts_) {
      check_finite_weight(weight_of(*layer), values_of(weight));
      if (by_data(*layer)) continue;
      WeightOnlyRecipe plain = own(weight);
      if (needs_data(plain.method)) plain.method = WeightMethod::rtn;
      StoredQuantizedWeight codes = rounded_codes(weight_of(*layer), values_of(weight), plain);
      inputs.replace(weight_of(*layer), dequantize_weight(codes));
      WeightError& error = keep(*layer, std::move(codes));
      if (!layer->is("aten::embedding") && (tables_.contains(weight) || reads_stored(*layer)))
        error.note = tables_.contains(weight) ? "an embedding reads its weight" : "its input is stored";
    }
  }

  /// Scales of the input, which all codes of a weight that several layers read would need.
  AwqScales search_scales(const InputGroup& group, const SecondMoments& moments) const {
    std::vector<at::Tensor> weights;
    std::vector<WeightOnlyRecipe> recipes;
    for (const Node* layer : group.layers) {
      const Value* weight = layer->arg("weight").value;
      if (readers_.at(weight) > 1) return {};
      weights.push_back(values_of(weight));
      recipes.push_back(own(weight));
    }
    return awq_scales(weights, moments, recipes);
  }

  /// The scale whose inverse a model of 16 bits holds: weights are times that one.
  at::Tensor in_type_of(const Node& layer, const at::Tensor& scale) const {
    const at::ScalarType type = graph_.attribute_tensor(layer.arg("weight").value).scalar_type();
    return type == at::kFloat ? scale : scale.reciprocal().to(type).to(at::kFloat).reciprocal();
  }

  /// The sums of an input that is divided by the scale.
  static at::Tensor divided(const at::Tensor& hessian, const at::Tensor& scale) {
    const at::Tensor inverse = scale.to(at::kDouble).reciprocal();
    return hessian * inverse.unsqueeze(1) * inverse;
  }

  void code(InputGroup& group, const SecondMoments& moments, LayerInputs& inputs) {
    AwqScales scales;
    at::Tensor hessian = moments.hessian;
    if (own(group.layers.front()->arg("weight").value).method == WeightMethod::awq)
      scales = search_scales(group, moments);
    if (scales.alpha > 0) {
      group.scale = in_type_of(*group.layers.front(), scales.scale);
      hessian = divided(hessian, group.scale);
    }
    for (const Node* layer : group.layers)
      code(*layer, group.scale, hessian, moments, inputs).alpha = scales.alpha;
  }

  /// `hessian` is that of the input over `scale`, which may be undefined: 1.
  WeightError& code(const Node& layer, const at::Tensor& scale, const at::Tensor& hessian,
                    const SecondMoments& moments, LayerInputs& inputs) {
    const Value* weight = layer.arg("weight").value;
    const WeightOnlyRecipe& recipe = own(weight);
    const at::Tensor values = values_of(weight);
    const at::Tensor scaled = scale.defined() ? values * scale : values;
    const bool is_awq = recipe.method == WeightMethod::awq;
    MatrixCodes made = is_awq ? awq_codes(scaled, hessian, recipe)
                              : gptq_codes(values, hessian, recipe, graph::label(layer));
    MatrixCodes plain = rtn_codes(values, recipe);
    const double whole = output_error(values, moments.hessian);
    double error = output_error(made.values() - scaled, hessian);
    const double plain_error = output_error(plain.values() - values, moments.hessian);
    if (!is_awq && error > plain_error) {
      plain.damp = made.damp;
      plain.note = "rounded plainly, which is closer";
      made = std::move(plain);
      error = plain_error;
    }
    const at::Tensor now = made.values();
    inputs.replace(weight_of(layer), scale.defined() ? now / scale : now);
    WeightError& told = keep(layer, stored_codes(made.codes, made.params, recipe));
    told.rows = moments.rows;
    told.error = whole > 0 ? error / whole : 0;
    told.plain_error = whole > 0 ? plain_error / whole : 0;
    told.damp = made.damp;
    told.note = made.note;
    if (moments.rows < told.columns) add_note(told, "fewer rows than columns");
    if (const int readers = readers_.at(weight); readers > 1)
      add_note(told, std::to_string(readers) + " layers read its weight, decided by the first one's inputs");
    return told;
  }

  Graph& graph_;
  const WeightOnlyRecipe& recipe_;
  Tables tables_;
  WeightRecipes recipes_;
  std::unordered_map<const Value*, const Node*> firsts_;  ///< of a weight: the first layer that reads it
  std::vector<const Value*> order_;                       ///< weights as they are first read
  std::unordered_map<const Value*, int> readers_;         ///< of a weight: how many of the layers read it
  std::vector<InputGroup> groups_;                        ///< in order of execution
  std::map<std::string, StoredQuantizedWeight> codes_;    ///< by name of the weight
  std::unordered_map<const Value*, WeightError> errors_;
};

WeightOnlyRecipe with_method(WeightOnlyRecipe recipe, WeightMethod method) {
  recipe.method = method;
  return recipe;
}

}  // namespace

std::shared_ptr<graph::GraphModule> quantize_weights(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const WeightOnlyRecipe& recipe,
                                                     const CalibrationData& data, graph::PassReport* report,
                                                     std::vector<WeightError>* errors,
                                                     const OnLayer& on_layer) {
  recipe.validate();
  if (recipe.search) {
    MixedPrecisionHooks hooks;
    if (on_layer) {
      hooks.on_step = [&](const char*, int64_t done, int64_t total, const std::string& note) {
        on_layer(done, total, note);
      };
    }
    MixedPrecision found = search_mixed_precision(captured, recipe, data, hooks);
    if (report != nullptr) *report = std::move(found.report);
    if (errors != nullptr) *errors = std::move(found.errors);
    return found.model;
  }
  if (!recipe.needs_data()) return quantize_weights(captured, recipe, report);
  if (recipe.rotate) {
    return with_rotation(captured, recipe, report, [&](const auto& rotated, const auto& rest, auto* own) {
      return quantize_weights(rotated, rest, data, own, errors, on_layer);
    });
  }
  LayerRewrite how = weights_rewrite(recipe);
  const std::shared_ptr<Graph> graph = layers_graph(captured, how);
  std::vector<std::string> refused;
  const std::vector<Node*> layers = layers_of(*graph, how, refused);
  CalibratedCoder calibrated(*graph, recipe, layers);
  calibrated.run(data, on_layer);
  calibrated.divide_inputs();
  WeightCoder coder([&](const std::string& name, const at::Tensor&) { return calibrated.codes(name); });
  how.remark = [&](const Node& layer) { return calibrated.remark(layer); };
  how.rewrite = [&](Graph& inside, Node* layer) { coder.rewrite(inside, layer); };
  const auto module = rewrite_layers(graph, how, report);
  if (errors != nullptr) *errors = calibrated.errors();
  return module;
}

std::shared_ptr<graph::GraphModule> gptq(const std::shared_ptr<graph::GraphModule>& captured,
                                         const CalibrationData& data, const WeightOnlyRecipe& recipe,
                                         graph::PassReport* report, std::vector<WeightError>* errors) {
  return quantize_weights(captured, with_method(recipe, WeightMethod::gptq), data, report, errors);
}

std::shared_ptr<graph::GraphModule> awq(const std::shared_ptr<graph::GraphModule>& captured,
                                        const CalibrationData& data, const WeightOnlyRecipe& recipe,
                                        graph::PassReport* report, std::vector<WeightError>* errors) {
  return quantize_weights(captured, with_method(recipe, WeightMethod::awq), data, report, errors);
}

}  // namespace ulp::quant
