#include "ulp/quant/static/quantizable.h"

#include <torch/types.h>

#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/fusion/chain.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::quant {

using graph::Argument;
using graph::Graph;
using graph::Node;

bool has_weight(const Node& node) {
  return is_any(node, {"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::linear"});
}

bool is_recurrent(const Node& node) {
  return node.is("aten::lstm") || node.is("aten::gru");
}

bool ends_fixed(const Node& node) {
  return node.is("aten::softmax") || node.is("aten::sigmoid") || node.is("aten::tanh");
}

bool takes_average(const Node& node) {
  return is_any(node, {"aten::avg_pool2d", "aten::adaptive_avg_pool2d", "aten::avg_pool1d",
                       "aten::adaptive_avg_pool1d"});
}

bool keeps_parameters(const Node& node) {
  return takes_average(node) || is_any(node, {"aten::max_pool2d", "aten::max_pool1d", "aten::flatten",
                                              "aten::view", "aten::reshape"});
}

bool is_code_pointwise(const Node& node) {
  if (node.target() == "aten::mul.Tensor") return node.args[0].is_value() && node.args[1].is_value();
  return graph::activation_of(node).has_value();
}

bool moves_channels(const Node& node) {
  return is_any(
      node, {"aten::channel_shuffle", "aten::chunk", "aten::split", "aten::split_with_sizes", "aten::slice",
             "aten::narrow", "ulp::depth_to_space", "aten::upsample_nearest2d", "aten::upsample_bilinear2d"});
}

bool joins_heads(const Node& node) {
  const Node& before = *node.args[0].value->producer;
  return before.is("aten::transpose") || before.is("aten::permute");
}

bool is_view(const Node& node) {
  return is_any(node, {"aten::transpose", "aten::permute", "aten::view", "aten::reshape", "aten::flatten",
                       "aten::unflatten", "aten::select", "aten::contiguous", "aten::chunk", "aten::split",
                       "aten::split_with_sizes", "aten::slice", "aten::narrow", "aten::unbind"});
}

std::string layer_obstacle(const Graph& graph, const Node& layer) {
  if (layer.target() != layer.op()) return "its padding is given as a word";
  const Argument &weight = layer.arg("weight"), &bias = layer.arg("bias");
  const at::Tensor values = weight.is_value() ? graph.attribute_tensor(weight.value) : at::Tensor();
  if (!values.defined()) return "its weight is computed, not stored";
  const std::string convert = "; convert the graph with to(torch::kFloat) first";
  if (values.scalar_type() != at::kFloat) return "its weight is not float32" + convert;
  const auto& meta = layer.args[0].value->meta;
  if (meta && meta->dtype != at::kFloat) return "its input is not float32" + convert;
  if (!bias.is_none() && !graph.attribute_tensor(bias.value).defined())
    return "its bias is computed, not stored";
  return "";
}

std::string attention_obstacle(const Node& attention) {
  const auto sizes = [&](const char* name) {
    return attention.arg(name).value->meta.value_or(graph::TensorMeta()).sizes;
  };
  const auto q = sizes("query"), k = sizes("key"), v = sizes("value");
  if (q.empty() || k.empty() || v.empty()) return "";  // shapes that are not known
  if (q.size() == 4 && k.size() == 4 && k == v && q[1] == k[1]) return "";
  return "its queries, keys and values are not [N, heads, S, depth] with as many heads";
}

std::string add_obstacle(const Node& add) {
  const std::string obstacle = graph::sum_obstacle(add);
  if (!obstacle.empty()) return obstacle;
  const bool floats =
      add.args[0].value->meta->dtype == at::kFloat && add.args[1].value->meta->dtype == at::kFloat;
  return floats ? "" : "its operands are not float32";
}

std::string cat_obstacle(const Node& cat) {
  const Argument& tensors = cat.args[0];
  const auto& meta = cat.output()->meta;
  if (tensors.kind != Argument::Kind::list || !meta) return "it does not read a list of known tensors";
  const size_t rank = meta->sizes.size();
  const auto dim = rank == 4 ? 1.0 : static_cast<double>(rank) - 1;
  const auto given = graph::number(cat.arg("dim"));
  if (given != dim && given != dim - static_cast<double>(rank)) return "it does not join channels";
  for (const Argument& tensor : tensors.items) {
    if (!tensor.is_value() || !tensor.value->meta || tensor.value->meta->dtype != at::kFloat)
      return "its operands are not float32";
  }
  return "";
}

}  // namespace ulp::quant
