// Convolutions, linear layers and products of matrices.
#include "ulp/exchange/coreml/along.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;
using graph::Value;

bool is_stored(const Builder& builder, const Value& value) {
  return builder.graph().attribute_tensor(&value).defined() || value.producer->is("ulp::dequantize_weight");
}

/// Inputs that convolutions of both kinds share.
Inputs window(Builder& builder, const Node& node, size_t dims, const std::string& weight) {
  Inputs inputs = {{"x", builder.in(node, "input")},
                   {"weight", weight},
                   {"strides", builder.ints(ints_arg(node, "stride", dims))},
                   {"dilations", builder.ints(ints_arg(node, "dilation", dims))},
                   {"groups", builder.integer(int_arg(node, "groups"))}};
  if (const Value* bias = optional_value(node, "bias")) inputs.emplace_back("bias", builder.name_of(bias));
  return inputs;
}

/// Before and behind each dimension.
std::vector<int64_t> padding_of(const Node& node, size_t dims) {
  std::vector<int64_t> pads;
  const graph::Argument& padding = node.arg("padding");
  if (padding.kind != graph::Argument::Kind::literal || !padding.literal.isString()) {
    for (const int64_t pad : ints_arg(node, "padding", dims)) pads.insert(pads.end(), {pad, pad});
    return pads;
  }
  const bool same = text_arg(node, "padding") == "same";
  const std::vector<int64_t> dilation = ints_arg(node, "dilation", dims);
  for (size_t d = 0; d < dims; ++d) {
    const int64_t kernel = fixed_size(node, *value_arg(node, "weight"), static_cast<int64_t>(d) + 2);
    const int64_t both = same ? dilation[d] * (kernel - 1) : 0;
    pads.insert(pads.end(), {both / 2, both - both / 2});
  }
  return pads;
}

void conv(Builder& builder, const Node& node) {
  const auto dims = static_cast<size_t>(rank_of(node, *value_arg(node, "weight")) - 2);
  Inputs inputs = window(builder, node, dims, builder.weight(node, "weight"));
  inputs.emplace_back("pad_type", builder.word("custom"));
  inputs.emplace_back("pad", builder.ints(padding_of(node, dims)));
  builder.result(node, "conv", std::move(inputs));
}

/// MIL has no output_padding: the whole result, of an image that ends in a zero where more is asked for than there is,
/// is cut to what LibTorch gives.
void conv_transpose_cut(Builder& builder, const Node& node, size_t dims) {
  const std::vector<int64_t> stride = ints_arg(node, "stride", dims), pad = ints_arg(node, "padding", dims),
                             dilation = ints_arg(node, "dilation", dims),
                             more = ints_arg(node, "output_padding", dims), to = shape_of(node);
  const std::vector<int64_t> kernel = shape_of(node, *value_arg(node, "weight"));
  Along along(builder, node, *value_arg(node, "input"));
  std::vector<int64_t> sizes = along.shape(), behind;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t zeros = more[d] > pad[d] ? (more[d] - pad[d] + stride[d] - 1) / stride[d] : 0;
    sizes[2 + d] += zeros;
    behind.insert(behind.end(), {0, zeros});
  }
  if (sizes != along.shape())
    along.step("pad",
               {{"x", along.name()},
                {"pad", builder.ints(behind)},
                {"mode", builder.word("constant")},
                {"constant_val", builder.number(0, type_of(*node.output()))}},
               sizes);
  Inputs inputs = window(builder, node, dims, builder.in(node, "weight"));
  inputs.front() = {"x", along.name()};
  inputs.emplace_back("pad_type", builder.word("valid"));
  sizes[1] = to[1];
  for (size_t d = 0; d < dims; ++d)
    sizes[2 + d] = (sizes[2 + d] - 1) * stride[d] + dilation[d] * (kernel[2 + d] - 1) + 1;
  along.step("conv_transpose", std::move(inputs), sizes);
  for (size_t d = 0; d < dims; ++d) along.slice(static_cast<int64_t>(2 + d), pad[d], pad[d] + to[2 + d]);
  along.finish();
}

void conv_transpose(Builder& builder, const Node& node) {
  const auto dims = static_cast<size_t>(rank_of(node, *value_arg(node, "weight")) - 2);
  if (ints_arg(node, "output_padding", dims) != std::vector<int64_t>(dims, 0))
    return conv_transpose_cut(builder, node, dims);
  Inputs inputs = window(builder, node, dims, builder.in(node, "weight"));
  inputs.emplace_back("pad_type", builder.word("custom"));
  inputs.emplace_back("pad", builder.ints(padding_of(node, dims)));
  builder.result(node, "conv_transpose", std::move(inputs));
}

Inputs product(Builder& builder, const std::string& x, const std::string& y, bool turned = false) {
  return {{"x", x}, {"y", y}, {"transpose_x", builder.flag(false)}, {"transpose_y", builder.flag(turned)}};
}

/// A weight that is computed: a product of matrices.
void computed_linear(Builder& builder, const Node& node) {
  Inputs inputs = product(builder, builder.in(node, "input"), builder.in(node, "weight"), /*turned=*/true);
  const Value* bias = optional_value(node, "bias");
  if (bias == nullptr) return builder.result(node, "matmul", std::move(inputs));
  builder.result(node, "add",
                 {{"x", builder.call(node, "matmul", std::move(inputs))}, {"y", builder.name_of(bias)}});
}

/// Core ML's layer takes up to three dimensions; more of them are rows for it.
void linear(Builder& builder, const Node& node) {
  constexpr size_t kMost = 3;
  if (!is_stored(builder, *value_arg(node, "weight"))) return computed_linear(builder, node);
  std::vector<int64_t> from = shape_of(node, *value_arg(node, "input")), to = shape_of(node);
  const bool folds = from.size() > kMost;
  std::string x = builder.in(node, "input");
  const at::ScalarType type = type_of(*node.output());
  if (folds) {
    const int64_t rows = from[0] * from[1];
    const std::vector<int64_t> rest(to.begin() + 2, to.end());
    from.erase(from.begin());
    from[0] = rows;
    x = reshaped(builder, node, x, {type, from});
    to.assign(1, rows);
    to.insert(to.end(), rest.begin(), rest.end());
  }
  Inputs inputs = {{"x", x}, {"weight", builder.weight(node, "weight")}};
  if (const Value* bias = optional_value(node, "bias")) inputs.emplace_back("bias", builder.name_of(bias));
  if (!folds) return builder.result(node, "linear", std::move(inputs));
  const std::string made = builder.call(node, "linear", std::move(inputs), {type, to});
  builder.result(node, "reshape", {{"x", made}, {"shape", builder.ints(shape_of(node))}});
}

void matmul(Builder& builder, const Node& node) {
  for (size_t i = 0; i < 2; ++i) {
    if (rank_of(node, *node.args.at(i).value) < 2) refuse(node, "expected matrices, got a vector");
  }
  builder.result(node, "matmul",
                 product(builder, builder.name_of(node.args[0].value), builder.name_of(node.args[1].value)));
}

/// beta self + alpha a b, where self may have fewer dimensions or sizes of 1.
void add_product(Builder& builder, const Node& node, const char* a, const char* b) {
  const at::ScalarType type = type_of(*node.output());
  const auto scaled = [&](const std::string& x, const char* factor, const std::vector<int64_t>& shape) {
    const double by = number_arg(node, factor);
    if (by == 1) return x;
    return builder.call(node, "mul", {{"x", x}, {"y", builder.number(by, type)}}, {type, shape});
  };
  const std::string made =
      builder.call(node, "matmul", product(builder, builder.in(node, a), builder.in(node, b)));
  const Value& self = *value_arg(node, "self");
  builder.result(node, "add",
                 {{"x", scaled(made, "alpha", shape_of(node))},
                  {"y", scaled(builder.name_of(&self), "beta", shape_of(node, self))}});
}

void addmm(Builder& builder, const Node& node) {
  add_product(builder, node, "mat1", "mat2");
}

void baddbmm(Builder& builder, const Node& node) {
  add_product(builder, node, "batch1", "batch2");
}

/// Rows of a table.
void embedding(Builder& builder, const Node& node) {
  builder.result(node, "gather",
                 {{"x", builder.weight(node, "weight")},
                  {"indices", builder.in(node, "indices")},
                  {"axis", builder.integer(0)},
                  {"batch_dims", builder.integer(0)}});
}

/// Codes of 8 bits with a scale for each row.
void dequantize_weight(Builder& builder, const Node& node) {
  const auto stored = [&](const char* argument) {
    const at::Tensor tensor = builder.graph().attribute_tensor(value_arg(node, argument));
    if (!tensor.defined()) refuse(node, "expected '", argument, "' to be a tensor that is stored");
    return tensor;
  };
  const at::Tensor codes = stored("codes");
  if (codes.scalar_type() != at::kChar)
    refuse(node, "expected weights of 8 bits: codes of 4 need a later version of Core ML");
  builder.alias(node.output(),
                builder.dequantized(codes, stored("scale"), value_arg(node, "codes")->producer->target()));
}

}  // namespace

ConverterTable layer_converters() {
  static constexpr Converter kTable[] = {{"aten::conv1d", conv},
                                         {"aten::conv2d", conv},
                                         {"aten::conv3d", conv},
                                         {"aten::conv_transpose1d", conv_transpose},
                                         {"aten::conv_transpose2d", conv_transpose},
                                         {"aten::conv_transpose3d", conv_transpose},
                                         {"aten::linear", linear},
                                         {"aten::matmul", matmul},
                                         {"aten::mm", matmul},
                                         {"aten::bmm", matmul},
                                         {"aten::addmm", addmm},
                                         {"aten::baddbmm", baddbmm},
                                         {"aten::embedding", embedding},
                                         {"ulp::dequantize_weight", dequantize_weight}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
