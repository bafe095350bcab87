#include "ulp/quant/methods/refine_layers.h"

#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/quant/methods/layer_rows.h"
#include "ulp/quant/methods/learned_rounding.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/quant/static/annotation.h"
#include "ulp/quant/static/bias_quantization.h"
#include "ulp/quant/static/convert_graph.h"
#include "ulp/quant/static/quantizable.h"
#include "ulp/quant/weights/layer_inputs.h"

namespace ulp::quant {
namespace {

using graph::Attribute;
using graph::Graph;
using graph::Node;

constexpr const char* kRefineWhere = "quant.quantize";

/// Sums over the rows of a layer's input, in the float network (x) and in the quantized one (q).
struct RowSums {
  at::Tensor x, q;    ///< f64 [groups, columns]
  RoundingData data;  ///< for adaround
  int64_t rows = 0;
};

/// A layer with codes, in both networks.
struct CodedLayer {
  Node* node = nullptr;                     ///< in the converted graph
  const Node* exact = nullptr;              ///< in the float graph
  Node *weight = nullptr, *bias = nullptr;  ///< their dequantize; no bias: null
  std::string label;
};

Node* dequantize_of(const graph::Argument& argument) {
  const bool is_call = argument.is_value() && argument.value->producer->is("ulp::dequantize");
  return is_call ? argument.value->producer : nullptr;
}

std::string in_figures(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

class CodeRefiner {
 public:
  CodeRefiner(Graph& converted, const Graph& exact, const Recipe& recipe, const StaticMethods& methods,
              const CalibrationData& data, graph::PassReport& report)
      : graph_(converted),
        exact_(exact),
        recipe_(recipe),
        methods_(methods),
        report_(report),
        learns_(methods.has(StaticMethod::adaround)),
        corrects_(methods.has(StaticMethod::bias_correction)),
        float_inputs_(exact, data, methods.recompute),
        inputs_(converted, data, methods.recompute) {
    std::unordered_map<std::string, const Node*> known;
    for (const auto& node : exact.nodes()) known.emplace(node->name(), node.get());
    for (const auto& node : converted.nodes()) {
      if (!has_weight(*node)) continue;
      Node* weight = dequantize_of(node->arg("weight"));
      const auto found = known.find(node->name());
      if (weight == nullptr || found == known.end()) continue;
      layers_.push_back({node.get(), found->second, weight, dequantize_of(node->arg("bias")),
                         graph::label(*found->second)});
    }
  }

  void run(const OnLayer& on_layer) {
    int64_t done = 0;
    const auto total = static_cast<int64_t>(layers_.size());
    for (const CodedLayer& layer : layers_) {
      if (on_layer) on_layer(done, total, layer.label);
      const RowSums sums = watch(layer);
      if (learns_) learn(layer, sums);
      if (corrects_) correct(layer, sums);
      ++done;
    }
    if (on_layer) on_layer(done, total, "");
  }

  const std::vector<WeightError>& errors() const { return errors_; }

 private:
  at::Tensor exact_weight(const CodedLayer& layer) const {
    return exact_.attribute_tensor(layer.exact->arg("weight").value).detach();
  }
  static const std::string& name_of(const Node& dequantize, size_t argument = 0) {
    return dequantize.args[argument].value->producer->target();
  }
  at::Tensor tensor_of(const Node& dequantize, size_t argument = 0) const {
    return graph_.attribute_tensor(dequantize.args[argument].value);
  }
  bool is_shared(const Node& dequantize) const { return graph_.users(dequantize.args[0].value).size() > 1; }

  /// The first of the nodes that read what this layer's turn may replace.
  std::string first_reader(const CodedLayer& layer) const {
    for (const auto& node : graph_.nodes()) {
      if (node.get() == layer.weight || node.get() == layer.bias) return node->name();
    }
    return layer.node->name();
  }

  RowSums watch(const CodedLayer& layer) {
    std::vector<at::Tensor> exact;
    float_inputs_.look(*layer.exact, [&](const at::Tensor& x) { exact.push_back(x.detach()); });
    RowSums sums;
    const at::Tensor weight = exact_weight(layer);
    size_t batch = 0;
    const auto use = [&](const at::Tensor& q) {
      if (batch >= exact.size() || exact[batch].sizes() != q.sizes())
        fail(kRefineWhere, "expected the same batches in every call of the calibration function, got others");
      if (!at::isfinite(exact[batch]).all().item<bool>())
        fail(kRefineWhere, "expected finite inputs of '", layer.label, "', got NaN or infinite values");
      for_rows(*layer.exact, weight, exact[batch++], q.detach(),
               [&](const at::Tensor& x, const at::Tensor& rounded) { add(sums, layer, weight, x, rounded); });
    };
    inputs_.look(*layer.node, use, first_reader(layer));
    if (batch != exact.size())
      fail(kRefineWhere, "expected the same batches in every call of the calibration function, got fewer");
    if (sums.rows == 0)
      fail(kRefineWhere, "expected rows of calibration data for '", layer.label, "', got none");
    return sums;
  }

  void add(RowSums& sums, const CodedLayer& layer, const at::Tensor& weight, const at::Tensor& x,
           const at::Tensor& q) const {
    const auto put = [](at::Tensor& sum, const at::Tensor& part) {
      const at::Tensor wide = part.to(at::kDouble);
      sum = sum.defined() ? sum.add_(wide) : wide.clone();
    };
    put(sums.x, x.sum(1, false, at::kDouble));
    put(sums.q, q.sum(1, false, at::kDouble));
    sums.rows += x.size(1);
    if (!learns_) return;
    const at::Tensor y = at::bmm(as_matrices(*layer.exact, weight), x.transpose(1, 2));
    put(sums.data.hessian, at::bmm(q.transpose(1, 2), q));
    put(sums.data.products, at::bmm(y, q));
    put(sums.data.norm, y.square().sum(2, false, at::kDouble));
  }

  /// Where biases take the mean error, what is left of it counts.
  RoundingData around_mean(const RowSums& sums, const at::Tensor& weight) const {
    const auto rows = static_cast<double>(sums.rows);
    const at::Tensor q = sums.q.unsqueeze(1);
    const at::Tensor y = at::bmm(weight.to(at::kDouble), sums.x.unsqueeze(2));
    return {.hessian = sums.data.hessian - at::bmm(q.transpose(1, 2), q) / rows,
            .products = sums.data.products - at::bmm(y, q) / rows,
            .norm = sums.data.norm - y.squeeze(2).square() / rows};
  }

  void learn(const CodedLayer& layer, const RowSums& sums) {
    if (is_shared(*layer.weight)) {
      report_.near_misses.push_back(layer.label +
                                    ": adaround leaves it rounded to nearest: several layers read "
                                    "its weight");
      return;
    }
    const at::Tensor values = exact_weight(layer), weight = as_matrices(*layer.exact, values);
    const at::Tensor scales = tensor_of(*layer.weight, 1);
    const at::Tensor scale =
        scales.expand({values.size(0)}).reshape({weight.size(0), weight.size(1), 1}).contiguous();
    const RoundingData data = corrects_ ? around_mean(sums, weight) : sums.data;
    const LearnedRounding made = adaround_weight(
        weight, scale, recipe_.weight_of(op_name(*layer.exact)).scheme, data, methods_.adaround_iterations);
    replace(name_of(*layer.weight), made.codes.reshape(values.sizes()).contiguous());
    const double whole = data.norm.sum().item<double>();
    WeightError error{.layer = layer.label, .weight = layer.exact->arg("weight").value->producer->target()};
    error.rows = sums.rows;
    error.columns = weight.size(2);
    error.groups = 1;
    error.error = whole > 0 ? made.error / whole : 0;
    error.plain_error = whole > 0 ? made.nearest / whole : 0;
    report_.changes.push_back(layer.label + ": rounding learned: error " + in_figures(error.error) +
                              " of its result, " + in_figures(error.plain_error) + " rounded to nearest, " +
                              std::to_string(sums.rows) + " rows");
    errors_.push_back(std::move(error));
  }

  void correct(const CodedLayer& layer, const RowSums& sums) {
    const auto leave = [&](const char* why) {
      report_.near_misses.push_back(layer.label + ": its bias is not corrected: " + why);
    };
    if (layer.bias == nullptr) return leave("it has none");
    if (is_shared(*layer.bias)) return leave("several layers read it");
    const at::Tensor bias = tensor_of(*layer.bias), scale = tensor_of(*layer.bias, 1);
    const at::Tensor codes = tensor_of(*layer.weight), steps = tensor_of(*layer.weight, 1);
    const auto mean = [&](const at::Tensor& matrices, const at::Tensor& sum) {
      return at::bmm(matrices.to(at::kDouble), sum.unsqueeze(2)).flatten() / static_cast<double>(sums.rows);
    };
    const at::Tensor exact = exact_.attribute_tensor(layer.exact->arg("bias").value).detach().to(at::kDouble);
    const at::Tensor wanted = mean(as_matrices(*layer.exact, exact_weight(layer)), sums.x) + exact;
    const at::Tensor got = mean(as_matrices(*layer.exact, codes), sums.q) * steps.to(at::kDouble);
    const at::Tensor corrected = wanted - got;
    const std::optional<at::Tensor> fitting = bias_codes(corrected, scale);
    if (!fitting) return leave("it would not fit into int32");
    const double most = (corrected - bias.to(at::kDouble) * scale.to(at::kDouble)).abs().max().item<double>();
    replace(name_of(*layer.bias), *fitting);
    report_.changes.push_back(layer.label + ": bias corrected by up to " + in_figures(most));
  }

  void replace(const std::string& name, const at::Tensor& codes) {
    inputs_.replace(name, codes);
    graph_.set_attribute(name, {Attribute::Kind::buffer, codes});
  }

  Graph& graph_;
  const Graph& exact_;
  const Recipe& recipe_;
  const StaticMethods& methods_;
  graph::PassReport& report_;
  bool learns_, corrects_;
  LayerInputs float_inputs_, inputs_;
  std::vector<CodedLayer> layers_ = {};
  std::vector<WeightError> errors_ = {};
};

}  // namespace

void add_zero_biases(PreparedModule& prepared) {
  Graph& graph = prepared.graph();
  for (const auto& node : graph.nodes()) {
    if (!has_weight(*node) || !layer_obstacle(graph, *node).empty() || !node->arg("bias").is_none()) continue;
    const graph::Argument& weight = node->arg("weight");
    std::string name = weight.value->producer->target() + ".zero_bias";
    while (graph.find_attribute(name) != nullptr) name += '_';
    const at::Tensor values = graph.attribute_tensor(weight.value);
    graph.set_attribute(name, {Attribute::Kind::buffer, at::zeros({values.size(0)}, values.options())});
    node->arg("bias") = graph.attribute(name);
  }
  prepared.recompile();
}

void refine_layers(graph::GraphModule& converted, const PreparedModule& prepared,
                   const StaticMethods& methods, const CalibrationData& data, graph::PassReport& report,
                   std::vector<WeightError>* errors, const OnLayer& on_layer) {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<Graph> exact = prepared.graph().clone();
  take_observers(*exact);
  CodeRefiner refiner(converted.graph(), *exact, prepared.recipe(), methods, data, report);
  refiner.run(on_layer);
  if (errors != nullptr) *errors = refiner.errors();
  converted.recompile();
}

}  // namespace ulp::quant
