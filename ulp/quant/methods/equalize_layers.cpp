// Cross-layer equalization: channels between two layers get weights of one size on both sides.
#include <torch/utils.h>

#include <algorithm>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/quant/methods/scale_channels.h"
#include "ulp/quant/static/inference_form.h"

namespace ulp::quant {
namespace {

using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kEqualizeWhere = "quant.equalize_layers";
constexpr int kMostRounds = 100;
constexpr double kSettled = 1e-4;  // of log s
constexpr double kDead = 0x1p-24;  // a channel's share of its layer's largest weight

/// A layer, its weight in double [groups, rows, columns, taps], and what its rows and columns were multiplied
/// by.
struct EqualLayer {
  Node* node = nullptr;
  at::Tensor weight;                   ///< f64
  at::Tensor rows, columns;            ///< f64 [outputs], [inputs]
  at::Tensor row_lives, column_lives;  ///< bool: of the weight before

  int64_t inputs() const { return weight.size(0) * weight.size(2); }
  at::Tensor row_range() const { return at::amax(weight.abs(), {2, 3}).flatten(); }
  at::Tensor column_range() const { return at::amax(weight.abs(), {1, 3}).flatten(); }
  void multiply_rows(const at::Tensor& by) {
    rows = rows * by;
    weight = weight * by.view({weight.size(0), weight.size(1), 1, 1});
  }
  void multiply_columns(const at::Tensor& by) {
    columns = columns * by;
    weight = weight * by.view({weight.size(0), 1, weight.size(2), 1});
  }
};

/// Two layers with channels between them.
struct EqualPair {
  EqualLayer *first = nullptr, *second = nullptr;
  int64_t copies = 1;  ///< inputs of the second for each output of the first: a flatten is between them
  std::vector<Node*> relu6 = {};  ///< between them
};

class Equalizer {
 public:
  Equalizer(Graph& graph, bool replace_relu6, graph::PassReport& report)
      : graph_(graph), replace_relu6_(replace_relu6), report_(report) {
    for (const auto& node : graph.nodes()) {
      if (has_weight(*node) && layer_obstacle(graph, *node).empty()) add_layer(*node);
    }
    for (const auto& node : graph.nodes()) {
      if (const auto found = layers_.find(node.get()); found != layers_.end()) find_pair(found->second);
    }
  }

  void run() {
    const auto is_settled = [](const at::Tensor& s) { return (s.log().abs() < kSettled).all().item<bool>(); };
    bool settled = false;
    for (int round = 0; round < kMostRounds && !settled; ++round) {
      settled = true;
      for (const EqualPair& pair : pairs_) settled = is_settled(equalize(pair)) && settled;
    }
    for (const EqualPair& pair : pairs_) {
      std::string note;
      for (Node* clamp : pair.relu6) {
        graph_.retarget(clamp, "aten::relu", {clamp->args[0]});
        note = ", relu6 became relu";
      }
      report_.changes.push_back(graph::label(*pair.first->node) + ": channels equalized with " +
                                graph::label(*pair.second->node) + note);
    }
    std::vector<Node*> order;
    for (const auto& node : graph_.nodes()) {
      if (layers_.contains(node.get())) order.push_back(node.get());
    }
    for (Node* node : order) write(layers_.at(node));
  }

 private:
  void add_layer(Node& node) {
    const at::Tensor weight = graph_.attribute_tensor(node.arg("weight").value).detach();
    if (!at::isfinite(weight).all().item<bool>())
      fail(kEqualizeWhere, "expected finite weights of '", graph::label(node),
           "', got NaN or infinite values");
    const bool is_linear = node.is("aten::linear");
    const int64_t groups = is_linear ? 1 : graph::integer(node.arg("groups")).value_or(1);
    const int64_t outputs = weight.size(0), inputs = weight.size(1);
    EqualLayer layer{.node = &node};
    layer.weight = weight.to(at::kDouble).reshape({groups, outputs / groups, inputs, -1});
    layer.rows = at::ones({outputs}, at::kDouble);
    layer.columns = at::ones({inputs * groups}, at::kDouble);
    const auto lives = [](const at::Tensor& range) { return range > kDead * range.max(); };
    layer.row_lives = lives(layer.row_range());
    layer.column_lives = lives(layer.column_range());
    layers_.emplace(&node, std::move(layer));
  }

  bool is_shared(const Node& layer) const {
    const graph::Argument& bias = layer.arg("bias");
    return graph_.users(layer.arg("weight").value).size() != 1 ||
           (!bias.is_none() && graph_.users(bias.value).size() != 1);
  }

  void refuse(const EqualLayer& layer, const std::string& why) {
    report_.near_misses.push_back(graph::label(*layer.node) +
                                  ": channels not equalized with those behind: " + why);
  }

  static bool is_homogeneous(const Node& node) {
    if (node.is("aten::leaky_relu")) return graph::number(node.arg("negative_slope")).value_or(-1) >= 0;
    return graph::activation_of(node) == Activation::relu;
  }
  static bool is_image_pooling(const Node& node) {
    return graph::is_any(node,
                         {"aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d", "aten::avg_pool1d",
                          "aten::avg_pool2d", "aten::avg_pool3d", "aten::adaptive_avg_pool1d",
                          "aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d"});
  }
  /// Channels come first among what is flattened.
  static bool flattens_channels(const Node& node) {
    return node.is("aten::flatten") && graph::integer(node.arg("start_dim")) == 1 &&
           graph::integer(node.arg("end_dim")) == -1;
  }

  /// Follows the result of a layer to the layer that reads it.
  void find_pair(EqualLayer& first) {
    if (is_shared(*first.node)) return refuse(first, "several layers read its weight or bias");
    const bool is_conv = !first.node->is("aten::linear");
    bool flat = !is_conv;  // channels are the last dimension
    EqualPair pair{.first = &first};
    Value* value = first.node->output();
    while (true) {
      Node* reader = graph::only_reader(graph_, value);
      if (reader == nullptr) return refuse(first, "its result is the model's, or several ops read it");
      if (has_weight(*reader)) return close(pair, *reader, is_conv, flat);
      if (graph::activation_of(*reader) == Activation::relu6) {
        if (!replace_relu6_) return refuse(first, "'" + reader->name() + "' clamps at 6");
        pair.relu6.push_back(reader);
      } else if (flattens_channels(*reader) && is_conv && !flat && has_batch(*first.node)) {
        flat = true;
      } else if (!is_homogeneous(*reader) && !(is_image_pooling(*reader) && is_conv && !flat)) {
        return refuse(first, graph::describe(*reader) + " reads its result");
      }
      value = reader->output();
    }
  }

  /// Its result has a dimension before that of the channels.
  static bool has_batch(const Node& conv) {
    return graph::rank(conv.arg("input")) == graph::rank(conv.arg("weight"));
  }

  void close(EqualPair& pair, Node& reader, bool is_conv, bool flat) {
    const auto found = layers_.find(&reader);
    const std::string name = graph::label(reader);
    if (found == layers_.end()) return refuse(*pair.first, name + " has no stored weight in float32");
    EqualLayer& second = found->second;
    if (is_shared(reader)) return refuse(*pair.first, "several layers read the weight or bias of " + name);
    if (flat != reader.is("aten::linear") || &second == pair.first)
      return refuse(*pair.first, name + " reads other channels");
    const int64_t outputs = pair.first->rows.size(0);
    pair.copies = second.inputs() / outputs;
    if (pair.copies * outputs != second.inputs() || (pair.copies > 1 && !(is_conv && flat)))
      return refuse(*pair.first, name + " reads other channels");
    pair.second = &second;
    pairs_.push_back(pair);
  }

  /// Returns s.
  static at::Tensor equalize(const EqualPair& pair) {
    const at::Tensor r1 = pair.first->row_range();
    const at::Tensor r2 = at::amax(pair.second->column_range().view({-1, pair.copies}), 1);
    const at::Tensor read = pair.second->column_lives.view({-1, pair.copies}).any(1);
    const at::Tensor s =
        at::where(pair.first->row_lives.logical_and(read), (r1 / r2).sqrt(), at::ones_like(r1));
    pair.first->multiply_rows(s.reciprocal());
    pair.second->multiply_columns(s.repeat_interleave(pair.copies));
    return s;
  }

  void write(EqualLayer& layer) {
    const auto one = [](const at::Tensor& scale) { return (scale == 1).all().item<bool>(); };
    if (one(layer.rows) && one(layer.columns)) return;
    graph::Argument& weight = layer.node->arg("weight");
    const at::Tensor before = graph_.attribute_tensor(weight.value);
    put(weight, layer.weight.reshape(before.sizes()));
    graph::Argument& bias = layer.node->arg("bias");
    if (!bias.is_none() && !one(layer.rows))
      put(bias, graph_.attribute_tensor(bias.value).detach().to(at::kDouble) * layer.rows);
  }

  void put(graph::Argument& argument, const at::Tensor& values) {
    const Value* before = argument.value;
    std::string name = before->producer->target() + ".equal";
    while (graph_.find_attribute(name) != nullptr) name += '_';
    const at::Tensor rounded = values.to(at::kFloat).contiguous();
    if (!at::isfinite(rounded).all().item<bool>())
      fail(kEqualizeWhere,
           "expected scaled weights and biases in the range of float32, got infinite ones of '",
           before->producer->target(), "'");
    graph_.set_attribute(name, {Attribute::Kind::parameter, rounded});
    Value* after = graph_.attribute(name);
    after->meta = before->meta;
    argument = after;
  }

  Graph& graph_;
  bool replace_relu6_;
  graph::PassReport& report_;
  std::unordered_map<const Node*, EqualLayer> layers_;
  std::vector<EqualPair> pairs_;
};

}  // namespace

std::shared_ptr<graph::GraphModule> equalize_layers(const std::shared_ptr<graph::GraphModule>& captured,
                                                    bool replace_relu6, graph::PassReport* report) {
  if (!captured) fail(kEqualizeWhere, "expected a captured model, got null");
  const at::NoGradGuard no_grad;
  graph::PassReport own{.pass = "equalize_layers"};
  const std::shared_ptr<Graph> graph = inference_graph(captured->graph());
  graph::store_transposes(*graph);
  Equalizer(*graph, replace_relu6, own).run();
  graph->remove_dead(/*attributes=*/true);
  auto module = std::make_shared<graph::GraphModule>(graph);
  module->eval();
  if (report != nullptr) *report = std::move(own);
  return module;
}

}  // namespace ulp::quant
