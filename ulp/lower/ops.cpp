#include "ulp/lower/ops.h"

#include <array>
#include <utility>

#include "ulp/graph/fusion/activation_of.h"

namespace ulp::lowering {

using graph::Node;

namespace {

constexpr std::array<std::pair<std::string_view, Lowering>, 46> kTable = {{
    {"aten::conv2d", lower_conv},
    {"aten::linear", lower_linear},
    {"aten::add", lower_add},
    {"aten::hardtanh", lower_activation},
    {"aten::clamp", lower_activation},
    {"aten::clamp_min", lower_activation},
    {"aten::max_pool2d", lower_max_pool},
    {"aten::avg_pool2d", lower_avg_pool},
    {"aten::adaptive_avg_pool2d", lower_global_pool},
    {"aten::mean", lower_mean},
    {"aten::flatten", lower_reshape},
    {"aten::view", lower_reshape},
    {"aten::reshape", lower_reshape},
    {"aten::squeeze", lower_squeeze},
    {"aten::cat", lower_concat},
    {"aten::chunk", lower_slices},
    {"aten::split", lower_slices},
    {"aten::split_with_sizes", lower_slices},
    {"aten::slice", lower_slices},
    {"aten::narrow", lower_slices},
    {"aten::channel_shuffle", lower_channel_shuffle},
    {"ulp::depth_to_space", lower_depth_to_space},
    {"aten::upsample_nearest2d", lower_resize},
    {"aten::upsample_bilinear2d", lower_resize},
    {"aten::softmax", lower_softmax},
    {"aten::_softmax", lower_softmax},
    {"aten::embedding", lower_embedding},
    {"aten::layer_norm", lower_layer_norm},
    {"aten::select", lower_select},
    {"aten::scaled_dot_product_attention", lower_attention},
    {"aten::transpose", lower_part_of_attention},
    {"aten::permute", lower_part_of_attention},
    {"aten::ne", lower_part_of_attention},
    {"aten::unsqueeze", lower_unsqueeze},
    {"aten::expand", lower_part_of_attention},
    {"aten::lstm", lower_recurrent},
    {"aten::gru", lower_recurrent},
    {"aten::zeros", lower_zeros},
    {"aten::zeros_like", lower_zeros},
    {"ulp::token_mean", lower_token_mean},
    {"ulp::linear_dynamic", lower_linear_dynamic},
    {"ulp::lstm_dynamic", lower_recurrent},
    {"ulp::gru_dynamic", lower_recurrent},
    {"ulp::dequantize_weight", lower_coded_weight},
    {"ulp::quantize", lower_quantize},
    {"ulp::dequantize", lower_dequantize},
}};

}  // namespace

Lowering find_lowering(const Node& node) {
  if (node.kind() != Node::Kind::call) return nullptr;
  for (const auto& [op, lowering] : kTable) {
    if (node.op() == op) return lowering;
  }
  return activation_of(node) ? lower_activation : nullptr;
}

std::string supported_ops() {
  std::string list;
  for (const auto& [op, lowering] : kTable) {
    if (op == "aten::_softmax") continue;
    if (!list.empty()) list += ", ";
    list += op.substr(op.find("::") + 2);
  }
  for (int i = 1; i < kActivationCount; ++i) list += std::string(", ") + kActivations[i].name;
  return list;
}

std::string hint_for(const Node& node) {
  if (node.kind() == Node::Kind::module || node.is("ulp::fake_quantize")) {
    return "observers and fake-quantizers do not run in an engine; call quant::convert first";
  }
  if (node.is("aten::batch_norm"))
    return "only batch norm behind a linear layer, or of images and sequences, has a form in the engine";
  if (node.is("aten::conv3d") || node.is("aten::conv_transpose3d"))
    return "the engine has convolutions of 1 and 2 dimensions";
  if (node.is("aten::conv_transpose1d")) return "the engine has transposed convolutions of images only";
  return "no lowering for this op";
}

}  // namespace ulp::lowering
