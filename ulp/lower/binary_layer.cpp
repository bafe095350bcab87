#include "ulp/lower/binary_layer.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"
#include "ulp/quant/operators/binary_ops.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

bool is_conv_or_linear(const Node& node) {
  return node.target() == "aten::conv2d" || node.target() == "aten::conv1d" || node.is("aten::linear");
}

/// The node that makes this value, where it is a call of this op.
Node* made_by(const Argument& arg, std::string_view op) {
  if (!arg.is_value()) return nullptr;
  Node* node = arg.value->producer;
  return node->is(op) ? node : nullptr;
}

bool is_of_signs(const at::Tensor& weight) {
  return weight.defined() && weight.scalar_type() == at::kFloat && weight.dim() >= 2 && weight.numel() > 0 &&
         weight.abs().eq(1).all().item<bool>();
}

/// Sides of ones that are alike left and right, above and below; empty where they are not.
std::vector<int64_t> padding_of(const Node& pad) {
  const std::vector<int64_t> sides = ints_arg(pad, "pad");
  if (number_arg(pad, "value") != 1.0 || sides.size() != 4) return {};
  const bool even = sides[0] == sides[1] && sides[2] == sides[3];
  return even && *std::ranges::min_element(sides) >= 0 ? std::vector<int64_t>{sides[2], sides[0]}
                                                       : std::vector<int64_t>{};
}

/// Bits have the batch first. What has it elsewhere is moved later, as float layers.
bool has_batch_first(const Value& value) {
  if (!value.meta || value.meta->sizes.empty()) return false;
  const auto& sizes = value.meta->sizes;
  return sizes[0] == graph::SizeExpr{1, 1, 0} &&
         std::all_of(sizes.begin() + 1, sizes.end(), [](const auto& size) { return size.constant(); });
}

std::vector<int64_t> pair_of(const Node& node, const char* name) {
  const Pair pair = pair_arg(node, name);
  return {pair.h, pair.w};
}

}  // namespace

int64_t BinaryLayer::channel_dim() const {
  return is_linear() ? static_cast<int64_t>(node->output()->meta->sizes.size()) - 1 : 1;
}

bool BinaryLayer::is_whole() const {
  return padding_one || std::ranges::all_of(padding, [](int64_t pad) { return pad == 0; });
}

bool looks_binary(const Graph& graph, const Node& node) {
  if (!is_conv_or_linear(node)) return false;
  const Node* pad = made_by(node.args[0], "aten::constant_pad_nd");
  if (made_by(pad != nullptr ? pad->args[0] : node.args[0], "ulp::binarize") != nullptr) return true;
  return node.arg("weight").is_value() && is_of_signs(graph.attribute_tensor(node.arg("weight").value));
}

std::string read_binary_layer(const Graph& graph, Node& node, BinaryLayer& layer) {
  layer = BinaryLayer();
  layer.node = &node;
  if (node.target() == "aten::conv1d") return "it is a convolution of sequences";
  layer.pad = made_by(node.args[0], "aten::constant_pad_nd");
  layer.binarize = made_by(layer.pad != nullptr ? layer.pad->args[0] : node.args[0], "ulp::binarize");
  if (layer.binarize == nullptr) return "its input does not come from ulp::binarize";
  layer.weight = graph.attribute_tensor(node.arg("weight").value);
  if (!is_of_signs(layer.weight)) return "its weight is not of +1 and -1";
  if (layer.length() >= int64_t{1} << 24) return "its sums have 2^24 products and more";
  if (!node.arg("bias").is_none()) return "its bias is added before a scale";
  if (!node.output()->meta || node.output()->meta->dtype != at::kFloat) return "its result is not f32";
  if (!has_batch_first(*node.output()) || !has_batch_first(*layer.binarize->output()))
    return "its batch is not dimension 0";
  if (layer.is_linear() && graph::rank(node.args[0]) > 3) return "it reads rows in four dimensions or more";
  if (layer.is_linear()) return layer.pad == nullptr ? "" : "its input is padded";
  if (graph::integer(node.arg("groups")).value_or(0) != 1) return "it has groups";
  layer.stride = pair_of(node, "stride");
  layer.padding = pair_of(node, "padding");
  layer.dilation = pair_of(node, "dilation");
  if (layer.pad == nullptr) return "";
  const bool padded = layer.padding[0] != 0 || layer.padding[1] != 0;
  layer.padding = padding_of(*layer.pad);
  layer.padding_one = true;
  return padded || layer.padding.empty() ? "it is padded by something other than +1 on opposite sides alike"
                                         : "";
}

void unpack_weights(Graph& graph) {
  const at::NoGradGuard no_grad;
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) {
    const bool signs = node->is("ulp::unpack_signs") || node->is("ulp::binarize");
    if (signs && graph.attribute_tensor(node->args[0].value).defined()) nodes.push_back(node.get());
  }
  for (Node* node : nodes) {
    const at::Tensor stored = graph.attribute_tensor(node->args[0].value);
    const bool bits = node->is("ulp::unpack_signs");
    const at::Tensor signs =
        bits ? quant::unpack_signs(stored, ints_arg(*node, "sizes")) : quant::binarize(stored.detach());
    std::string name = node->args[0].value->producer->target();
    if (name.ends_with(".signs")) name.resize(name.size() - std::string_view(".signs").size());
    while (graph.find_attribute(name) != nullptr) name += "_signs";
    graph.set_attribute(name, {graph::Attribute::Kind::constant, signs});
    Value* value = graph.attribute(name);
    value->meta = node->output()->meta;
    graph.replace_uses(node->output(), value);
    graph.erase(node);
  }
}

}  // namespace ulp::lowering
