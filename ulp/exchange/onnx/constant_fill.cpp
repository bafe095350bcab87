// Tensors that are made, not computed: of one number, of numbers in a row, triangles.
#include <torch/types.h>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::SizeExpr;

void filled(Builder& builder, const Node& node, const c10::Scalar& value) {
  const at::Tensor one = torch::full({1}, value, torch::dtype(type_of(*node.output())));
  builder.result(node, "ConstantOfShape", {builder.sizes(node, sizes_of(node, *node.output()))},
                 {{"value", one}});
}

void zeros(Builder& builder, const Node& node) {
  filled(builder, node, 0);
}
void ones(Builder& builder, const Node& node) {
  filled(builder, node, 1);
}
void full(Builder& builder, const Node& node) {
  filled(builder, node, scalar_arg(node, "fill_value"));
}
/// `fill` reads no number of what it fills.
void fill(Builder& builder, const Node& node) {
  const graph::Value* number = optional_value(node, "value");
  if (number == nullptr) return filled(builder, node, scalar_arg(node, "value"));
  builder.result(node, "Expand",
                 {builder.name_as(node, *number, type_of(*node.output())),
                  builder.sizes(node, sizes_of(node, *node.output()))});
}

/// start, start + step, ... below end.
void arange(Builder& builder, const Node& node) {
  const at::ScalarType type = type_of(*node.output());
  const auto bound = [&](const char* argument, double otherwise) {
    if (!has_arg(node, argument)) return builder.scalar(otherwise, type);
    const graph::Argument& arg = node.arg(argument);
    if (arg.kind != graph::Argument::Kind::batch)
      return builder.scalar(scalar_arg(node, argument, otherwise), type);
    const std::string size =
        builder.call(node, "Squeeze", {builder.sizes(node, {arg.batch}), builder.ints({0})});
    return type == at::kLong ? size : builder.cast(node, size, type);
  };
  builder.result(node, "Range", {bound("start", 0), bound("end", 0), bound("step", 1)});
}

template <bool upper>
void triangle(Builder& builder, const Node& node) {
  builder.result(
      node, "Trilu",
      {builder.in(node, "self"), builder.scalar(static_cast<double>(int_arg(node, "diagonal")), at::kLong)},
      {{"upper", int64_t{upper}}});
}

}  // namespace

ConverterTable fill_converters() {
  static constexpr Converter kTable[] = {
      {"aten::zeros", zeros},        {"aten::zeros_like", zeros}, {"aten::new_zeros", zeros},
      {"aten::ones", ones},          {"aten::ones_like", ones},   {"aten::new_ones", ones},
      {"aten::full", full},          {"aten::full_like", full},   {"aten::new_full", full},
      {"aten::fill", fill},          {"aten::arange", arange},    {"aten::tril", triangle<false>},
      {"aten::triu", triangle<true>}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
