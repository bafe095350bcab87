// Convolutions and products of matrices.
#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

/// Inputs x, weight and, where there is one, bias.
Names layer_inputs(Builder& builder, const Node& node) {
  Names inputs = {builder.in(node, "input"), builder.in(node, "weight")};
  if (const Value* bias = optional_value(node, "bias")) inputs.push_back(builder.name_of(bias));
  return inputs;
}

/// The same padding before and behind, as ONNX lists it.
std::vector<int64_t> both_sides(std::vector<int64_t> pads) {
  const size_t n = pads.size();
  for (size_t i = 0; i < n; ++i) pads.push_back(pads[i]);
  return pads;
}

Attributes window_attributes(const Node& node, size_t dims) {
  const Value& weight = *value_arg(node, "weight");
  std::vector<int64_t> kernel;
  for (size_t d = 0; d < dims; ++d) kernel.push_back(fixed_size(node, weight, static_cast<int64_t>(d) + 2));
  return {{"kernel_shape", kernel},
          {"strides", ints_arg(node, "stride", dims)},
          {"dilations", ints_arg(node, "dilation", dims)},
          {"group", int_arg(node, "groups")}};
}

/// What stands before and behind each dimension. ONNX's own words for it do not go with dilation everywhere; of
/// an odd number, LibTorch has the larger half behind.
std::vector<int64_t> pads_of(const Node& node, size_t dims) {
  const graph::Argument& padding = node.arg("padding");
  if (padding.kind != graph::Argument::Kind::literal || !padding.literal.isString())
    return both_sides(ints_arg(node, "padding", dims));
  std::vector<int64_t> pads(2 * dims, 0);
  if (text_arg(node, "padding") != "same") return pads;
  const std::vector<int64_t> dilation = ints_arg(node, "dilation", dims);
  for (size_t d = 0; d < dims; ++d) {
    const int64_t kernel = fixed_size(node, *value_arg(node, "weight"), static_cast<int64_t>(d) + 2);
    const int64_t both = dilation[d] * (kernel - 1);
    pads[d] = both / 2;
    pads[dims + d] = both - both / 2;
  }
  return pads;
}

void conv(Builder& builder, const Node& node) {
  const auto dims = static_cast<size_t>(rank_of(node, *value_arg(node, "weight")) - 2);
  Attributes attributes = window_attributes(node, dims);
  attributes.push_back({"pads", pads_of(node, dims)});
  builder.result(node, "Conv", layer_inputs(builder, node), std::move(attributes));
}

void conv_transpose(Builder& builder, const Node& node) {
  const auto dims = static_cast<size_t>(rank_of(node, *value_arg(node, "weight")) - 2);
  Attributes attributes = window_attributes(node, dims);
  attributes.push_back({"pads", both_sides(ints_arg(node, "padding", dims))});
  attributes.push_back({"output_padding", ints_arg(node, "output_padding", dims)});
  builder.result(node, "ConvTranspose", layer_inputs(builder, node), std::move(attributes));
}

void matmul(Builder& builder, const Node& node) {
  builder.result(node, "MatMul",
                 {builder.name_of(node.args.at(0).value), builder.name_of(node.args.at(1).value)});
}

/// beta self + alpha a b.
void add_product(Builder& builder, const Node& node, const char* a, const char* b) {
  const at::ScalarType type = type_of(*node.output());
  const auto scaled = [&](const std::string& x, const char* factor) {
    const c10::Scalar by = scalar_arg(node, factor);
    return by.toDouble() == 1 ? x : builder.call(node, "Mul", {x, builder.scalar(by, type)});
  };
  const std::string product = builder.call(node, "MatMul", {builder.in(node, a), builder.in(node, b)});
  builder.result(node, "Add", {scaled(product, "alpha"), scaled(builder.in(node, "self"), "beta")});
}

void addmm(Builder& builder, const Node& node) {
  add_product(builder, node, "mat1", "mat2");
}

void baddbmm(Builder& builder, const Node& node) {
  add_product(builder, node, "batch1", "batch2");
}

}  // namespace

std::string transposed(Builder& builder, const Node& node, const std::string& x,
                       const std::vector<int64_t>& order) {
  return builder.call(node, "Transpose", {x}, {{"perm", order}});
}

ConverterTable layer_converters() {
  static constexpr Converter kTable[] = {{"aten::conv1d", conv},
                                         {"aten::conv2d", conv},
                                         {"aten::conv3d", conv},
                                         {"aten::conv_transpose1d", conv_transpose},
                                         {"aten::conv_transpose2d", conv_transpose},
                                         {"aten::conv_transpose3d", conv_transpose},
                                         {"aten::matmul", matmul},
                                         {"aten::mm", matmul},
                                         {"aten::bmm", matmul},
                                         {"aten::addmm", addmm},
                                         {"aten::baddbmm", baddbmm}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
