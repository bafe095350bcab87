// SmoothQuant: what large channels of an activation have too much of goes into the weights that read them.
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/quant/methods/scale_channels.h"
#include "ulp/quant/methods/watched_model.h"
#include "ulp/quant/observers/observer.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/static/inference_form.h"
#include "ulp/quant/weights/input_scales.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kSmoothWhere = "quant.smooth_quant";
constexpr int64_t kSearchRows = 2048;  // that a search looks at
constexpr int64_t kBatchRows = 256;    // of one batch
constexpr int kAlphaSteps = 10;
constexpr double kLargestScale = 0x1p64;  // its square and those of weights are numbers of float32

/// Layers that read one value, and what the data say of that.
struct SmoothGroup {
  std::vector<Node*> layers;
  at::Tensor low, high;               ///< f32 [columns]: bounds of each channel
  std::vector<at::Tensor> rows = {};  ///< f32 [rows, columns], for a search
  int64_t kept = 0;                   ///< how many those are

  Value* input() const { return layers.front()->args[0].value; }
  std::string name() const { return graph::label(*layers.front()); }
  at::Tensor largest() const { return at::maximum(low.abs(), high.abs()); }
};

/// Scales of one alpha, and the error that quantization leaves with them.
struct SmoothScales {
  at::Tensor scale;  ///< undefined: none
  double alpha = 0, error = 0;
};

/// max|X|^alpha / max|W|^(1 - alpha), 1 where one is 0 and where s or 1 / s would leave the range of float32.
at::Tensor smooth_scale(const at::Tensor& inputs, const at::Tensor& weights, double alpha) {
  const at::Tensor x = inputs.to(at::kDouble), w = weights.to(at::kDouble);
  const at::Tensor scale = x.pow(alpha) / w.pow(1 - alpha);
  const at::Tensor fits = (scale >= 1 / kLargestScale).logical_and(scale <= kLargestScale);
  return at::where((x > 0).logical_and(w > 0).logical_and(fits), scale, at::ones_like(scale)).to(at::kFloat);
}

class Smoother {
 public:
  Smoother(Graph& graph, const Recipe& recipe, graph::PassReport& report)
      : graph_(graph), recipe_(recipe), report_(report) {
    std::unordered_map<const Value*, size_t> known;
    for (const auto& node : graph.nodes()) {
      if (!node->is("aten::linear")) continue;
      const OpName name = op_name(*node);
      const bool wanted = std::ranges::find(recipe.ops, name.op) != recipe.ops.end();
      if (!wanted || recipe.skips(name) || !layer_obstacle(graph, *node).empty()) continue;
      const auto [place, is_new] = known.emplace(node->args[0].value, groups_.size());
      if (is_new) groups_.emplace_back();
      groups_[place->second].layers.push_back(node.get());
    }
    std::erase_if(groups_, [&](const SmoothGroup& group) { return refuses(group); });
  }

  void watch(const CalibrationData& data) {
    if (groups_.empty()) return;
    const std::shared_ptr<Graph> tapped = graph_.clone();
    std::map<std::string, Value*> values;
    for (const auto& node : tapped->nodes()) {
      for (const auto& value : node->outputs()) values[value->name] = value.get();
    }
    std::vector<Argument> taps;
    for (const SmoothGroup& group : groups_) taps.emplace_back(values.at(group.input()->name));
    tapped->set_output(Argument::tuple(std::move(taps)));
    tapped->remove_dead();
    graph::GraphModule model(tapped);
    model.eval();
    data([&](const std::vector<at::Tensor>& inputs) {
      const std::vector<at::Tensor> seen = model.forward_all(inputs);
      for (size_t i = 0; i < groups_.size(); ++i) add(groups_[i], seen[i]);
    });
    for (const SmoothGroup& group : groups_) {
      if (!group.low.defined())
        fail(kSmoothWhere, "expected rows of calibration data for '", group.name(), "', got none");
    }
  }

  void run() {
    for (SmoothGroup& group : groups_) {
      const SmoothScales best = scales_of(group);
      group.rows.clear();
      if (!best.scale.defined()) {
        refuse(group, "no alpha lessens the error");
        continue;
      }
      const std::string where = fold_into_maker(graph_, group.layers, best.scale);
      if (where.empty()) {
        refuse(group, "nothing takes 1 / s before " + maker(group));
        continue;
      }
      for (Node* layer : group.layers) {
        multiply_columns(*layer, best.scale);
        char alpha[32];
        std::snprintf(alpha, sizeof alpha, "%g", best.alpha);
        report_.changes.push_back(graph::label(*layer) + ": smoothquant with alpha " + alpha +
                                  ", 1 / s is in " + where);
      }
    }
  }

 private:
  std::string maker(const SmoothGroup& group) const {
    const Value* input = group.input();
    return input->producer->kind() == Node::Kind::call ? graph::describe(*input->producer)
                                                       : '\'' + input->name + '\'';
  }

  void refuse(const SmoothGroup& group, const std::string& why) {
    for (const Node* layer : group.layers)
      report_.near_misses.push_back(graph::label(*layer) + ": smoothquant leaves it as it is: " + why);
  }

  bool refuses(const SmoothGroup& group) {
    const Value* input = group.input();
    if (input->producer->kind() != Node::Kind::call) {
      refuse(group, "nothing takes 1 / s before " + maker(group));
      return true;
    }
    for (const Node* reader : graph_.users(input)) {
      if (std::ranges::find(group.layers, reader) != group.layers.end()) continue;
      refuse(group, "its input '" + input->name + "' is also read by " +
                        (reader->kind() == Node::Kind::output ? "the result" : graph::describe(*reader)));
      return true;
    }
    for (const Node* layer : group.layers) {
      if (graph_.users(layer->arg("weight").value).size() == 1) continue;
      refuse(group, "several layers read the weight of " + graph::label(*layer));
      return true;
    }
    return false;
  }

  void add(SmoothGroup& group, const at::Tensor& value) {
    const at::Tensor x = value.detach().reshape({-1, value.size(-1)}).to(at::kFloat);
    if (x.size(0) == 0) return;
    if (!at::isfinite(x).all().item<bool>()) {
      fail(kSmoothWhere, "expected finite inputs of '", group.name(), "', got ",
           at::isnan(x).sum().item<int64_t>(), " NaN and ", at::isinf(x).sum().item<int64_t>(),
           " infinite values");
    }
    const at::Tensor low = at::amin(x, 0), high = at::amax(x, 0);
    group.low = group.low.defined() ? at::minimum(group.low, low) : low;
    group.high = group.high.defined() ? at::maximum(group.high, high) : high;
    if (!recipe_.methods.smoothquant_alpha.searched || group.kept >= kSearchRows) return;
    const int64_t step = (x.size(0) + kBatchRows - 1) / kBatchRows;
    group.rows.push_back(x.slice(0, 0, std::nullopt, step).clone());
    group.kept += group.rows.back().size(0);
  }

  at::Tensor weight(const Node& layer) const {
    return graph_.attribute_tensor(layer.arg("weight").value).detach();
  }

  SmoothScales scales_of(const SmoothGroup& group) const {
    at::Tensor columns;
    for (const Node* layer : group.layers) {
      const at::Tensor own = at::amax(weight(*layer).abs(), 0);
      if (!at::isfinite(own).all().item<bool>())
        fail(kSmoothWhere, "expected finite weights of '", graph::label(*layer),
             "', got NaN or infinite values");
      columns = columns.defined() ? at::maximum(columns, own) : own;
    }
    const SmoothAlpha& wanted = recipe_.methods.smoothquant_alpha;
    const at::Tensor inputs = group.largest();
    if (!wanted.searched)
      return {.scale = smooth_scale(inputs, columns, wanted.value), .alpha = wanted.value};
    const at::Tensor rows = at::cat(group.rows);
    SmoothScales best{.error = error_of(group, rows, at::ones_like(inputs))};
    for (int i = 0; i <= kAlphaSteps; ++i) {
      const double alpha = static_cast<double>(i) / kAlphaSteps;
      const at::Tensor scale = smooth_scale(inputs, columns, alpha);
      const double error = error_of(group, rows, scale);
      if (error < best.error) best = {.scale = scale, .alpha = alpha, .error = error};
    }
    return best;
  }

  /// ||Q(X / s) Q(W s)^T - X W^T||^2 of all layers.
  double error_of(const SmoothGroup& group, const at::Tensor& rows, const at::Tensor& scale) const {
    const OpName name = op_name(*group.input()->producer);
    const QParams params =
        choose_qparams((group.low / scale).min().reshape({1}), (group.high / scale).max().reshape({1}),
                       recipe_.activation_of(name).scheme);
    const at::Tensor x = quantize_dequantize(rows / scale, params);
    double error = 0;
    for (const Node* layer : group.layers) {
      const at::Tensor exact = weight(*layer), scaled = exact * scale;
      const auto observer = make_observer(recipe_.weight_of(op_name(*layer)), graph::label(*layer));
      observer->forward(scaled);
      const at::Tensor rounded = quantize_dequantize(scaled, observer->qparams());
      error += (at::linear(x, rounded) - at::linear(rows, exact)).square_().sum(at::kDouble).item<double>();
    }
    return error;
  }

  void multiply_columns(Node& layer, const at::Tensor& scale) {
    const Value* before = layer.arg("weight").value;
    std::string name = before->producer->target() + ".smooth";
    while (graph_.find_attribute(name) != nullptr) name += '_';
    graph_.set_attribute(name,
                         {Attribute::Kind::parameter, graph_.attribute_tensor(before).detach() * scale});
    Value* after = graph_.attribute(name);
    after->meta = before->meta;
    layer.arg("weight") = after;
  }

  Graph& graph_;
  const Recipe& recipe_;
  graph::PassReport& report_;
  std::vector<SmoothGroup> groups_;
};

}  // namespace

std::shared_ptr<graph::GraphModule> smooth_quant(const std::shared_ptr<graph::GraphModule>& captured,
                                                 const Calibrate& data, const Recipe& recipe,
                                                 graph::PassReport* report) {
  if (!captured) fail(kSmoothWhere, "expected a captured model, got null");
  if (!data) fail(kSmoothWhere, "expected a function that runs calibration data, got none");
  recipe.validate();
  const at::NoGradGuard no_grad;
  graph::PassReport own{.pass = "smoothquant"};
  const std::shared_ptr<Graph> graph = inference_graph(captured->graph());
  graph::store_transposes(*graph);
  Smoother smoother(*graph, recipe, own);
  smoother.watch(batches_of(captured, data));
  smoother.run();
  graph->remove_dead(/*attributes=*/true);
  auto module = std::make_shared<graph::GraphModule>(graph);
  module->eval();
  if (report != nullptr) *report = std::move(own);
  return module;
}

}  // namespace ulp::quant
