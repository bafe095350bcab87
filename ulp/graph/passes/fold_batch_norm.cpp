#include <torch/utils.h>

#include <algorithm>

#include "ulp/graph/passes/pass.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

enum class Layer { none, linear, convolution, transposed };

Layer layer_of(const Node& node) {
  for (const char* op : {"aten::conv1d", "aten::conv2d", "aten::conv3d"}) {
    if (node.is(op)) return Layer::convolution;
  }
  for (const char* op : {"aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d"}) {
    if (node.is(op)) return Layer::transposed;
  }
  return node.is("aten::linear") ? Layer::linear : Layer::none;
}

class BatchNormFolder {
 public:
  explicit BatchNormFolder(Graph& graph) : graph_(graph) { report_.pass = "fold_batch_norm"; }

  PassReport run() {
    std::vector<Node*> norms;
    for (const auto& node : graph_.nodes()) {
      if (node->is("aten::batch_norm")) norms.push_back(node.get());
    }
    for (Node* norm : norms) {
      if (!norm->arg("input").is_value()) continue;
      Node* layer = norm->arg("input").value->producer;
      std::string title = label(*layer) + " -> " + label(*norm);
      std::string obstacle = why_not(*layer, *norm);
      if (!obstacle.empty()) {
        report_.near_misses.push_back(title + " not folded: " + obstacle);
        continue;
      }
      fold(*layer, *norm);
      report_.changes.push_back(title + " folded");
    }
    return std::move(report_);
  }

 private:
  at::Tensor tensor(const Argument& arg) const {
    return arg.is_value() ? graph_.attribute_tensor(arg.value) : at::Tensor();
  }

  /// Empty when nothing stands in the way.
  std::string why_not(const Node& layer, const Node& norm) const {
    Layer kind = layer_of(layer);
    if (kind == Layer::none) return label(layer) + " is no convolution or linear layer";
    std::string others = other_users(graph_, layer.output(), norm);
    if (!others.empty()) return label(layer) + "'s output is also used by " + others;
    if (kind == Layer::linear && rank(layer.output()) != 2)
      return "the channels of " + label(layer) + "'s output are not its features";
    const Argument& training = norm.arg("training");
    if (training.kind == Argument::Kind::literal && training.literal.toBool())
      return label(norm) + " normalizes by the batch's own statistics in eval mode too";
    if (!tensor(norm.arg("running_mean")).defined() || !tensor(norm.arg("running_var")).defined())
      return label(norm) + " has no running statistics";
    for (const char* name : {"weight", "bias"}) {
      for (const Node* node : {&layer, &norm}) {
        if (!node->arg(name).is_none() && !tensor(node->arg(name)).defined())
          return label(*node) + "'s " + name + " is computed, not a parameter";
      }
      std::string shared = sharers(layer, layer.arg(name));
      if (!shared.empty()) return label(layer) + "'s " + name + " is also used by " + shared;
    }
    return "";
  }

  /// Other readers of the layer's parameter, also under another name.
  std::string sharers(const Node& layer, const Argument& parameter) const {
    if (!parameter.is_value()) return "";
    std::string others = other_users(graph_, parameter.value, layer);
    if (!others.empty()) return others;
    at::Tensor own = tensor(parameter);
    for (const auto& [name, attribute] : graph_.attributes()) {
      if (name != parameter.value->producer->target() && attribute.tensor.is_same(own)) return name;
    }
    return "";
  }

  /// One factor for each output channel, shaped to multiply the weight.
  static at::Tensor scaled_weight(const at::Tensor& weight, const at::Tensor& scale, Layer kind,
                                  int64_t groups) {
    std::vector<int64_t> shape(weight.dim(), 1);
    if (kind != Layer::transposed) {
      shape[0] = -1;
      return weight * scale.view(shape);
    }
    // Transposed weights are [in, out / groups, ...]: the inputs of group g meet its outputs alone.
    std::vector<int64_t> split = weight.sizes().vec();
    split[0] /= groups;
    split.insert(split.begin(), groups);
    shape.insert(shape.begin(), groups);
    shape[2] = -1;
    return (weight.reshape(split) * scale.view(shape)).reshape(weight.sizes());
  }

  void fold(Node& layer, Node& norm) {
    at::NoGradGuard no_grad;
    at::Tensor weight = tensor(layer.arg("weight")), bias = tensor(layer.arg("bias"));
    at::Tensor mean = tensor(norm.arg("running_mean")).to(at::kDouble);
    at::Tensor var = tensor(norm.arg("running_var")).to(at::kDouble);
    at::Tensor gamma = tensor(norm.arg("weight")), beta = tensor(norm.arg("bias"));
    double eps = norm.arg("eps").literal.toDouble();
    // In double: the result is rounded once, as if the formula had been exact.
    at::Tensor scale = 1 / (var + eps).sqrt();
    if (gamma.defined()) scale = scale * gamma.to(at::kDouble);
    at::Tensor shift = -mean * scale;
    if (bias.defined()) shift = shift + bias.to(at::kDouble) * scale;
    if (beta.defined()) shift = shift + beta.to(at::kDouble);
    Layer kind = layer_of(layer);
    int64_t groups = kind == Layer::linear ? 1 : integer(layer.arg("groups")).value_or(1);
    at::Tensor folded = scaled_weight(weight.to(at::kDouble), scale, kind, groups).to(weight.scalar_type());
    if (weight.dim() == 4) folded = folded.contiguous(weight.suggest_memory_format());

    std::string weight_name = layer.arg("weight").value->producer->target();
    set_parameter(weight_name, folded, weight);
    std::string bias_name;
    if (bias.defined()) {
      bias_name = layer.arg("bias").value->producer->target();
    } else {
      size_t dot = weight_name.rfind('.');
      bias_name = (dot == std::string::npos ? "" : weight_name.substr(0, dot + 1)) + "bias";
      while (graph_.find_attribute(bias_name)) bias_name += "_folded";
    }
    set_parameter(bias_name, shift.to(weight.scalar_type()), weight);
    layer.arg("bias") = graph_.attribute(bias_name);
    remove(norm, layer);
  }

  void set_parameter(const std::string& name, at::Tensor tensor, const at::Tensor& like) {
    tensor.set_requires_grad(like.requires_grad());
    graph_.set_attribute(name, {Attribute::Kind::parameter, std::move(tensor)});
  }

  /// Removes the norm, its tensors and the counting of its batches.
  void remove(Node& norm, Node& layer) {
    std::vector<std::string> names;
    for (Value* value : norm.reads()) {
      if (value->producer->kind() == Node::Kind::attribute) names.push_back(value->producer->target());
    }
    std::string path = names.front().substr(0, names.front().rfind('.') + 1);
    names.push_back(path + "num_batches_tracked");
    graph_.replace_uses(norm.output(), layer.output());
    graph_.erase(&norm);
    for (const std::string& name : names) {
      const Attribute* attribute = graph_.find_attribute(name);
      if (!attribute) continue;
      Value* value = graph_.attribute(name);
      for (Node* user : graph_.users(value)) {
        if (user->train_only && graph_.users(user->output()).empty()) graph_.erase(user);
      }
      if (graph_.users(value).empty()) graph_.erase_attribute(name);
    }
  }

  Graph& graph_;
  PassReport report_;
};

}  // namespace

PassReport fold_batch_norm(Graph& graph) {
  return BatchNormFolder(graph).run();
}

}  // namespace ulp::graph
