// Arithmetic and comparisons of two tensors, or of a tensor and a number.
#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

/// A tensor or a number as a tensor of this type.
std::string operand(Builder& builder, const Node& node, std::string_view argument, at::ScalarType type) {
  const Value* value = optional_value(node, argument);
  if (value == nullptr) {
    const graph::Argument& arg = node.arg(argument);
    if (arg.kind != graph::Argument::Kind::batch) return builder.scalar(scalar_arg(node, argument), type);
    const std::string size = builder.sizes(node, {arg.batch});
    return type == at::kLong ? size : builder.cast(node, size, type);
  }
  return builder.name_as(node, *value, type);
}

/// `op` of self and other, the second one times alpha, in the result's type.
void binary(Builder& builder, const Node& node, const char* op, bool swapped = false) {
  const at::ScalarType type = type_of(*node.output());
  std::string a = operand(builder, node, "self", type), b = operand(builder, node, "other", type);
  if (has_arg(node, "alpha") && number_arg(node, "alpha") != 1) {
    std::string& scaled = swapped ? a : b;
    scaled = builder.call(node, "Mul", {scaled, builder.scalar(scalar_arg(node, "alpha"), type)});
  }
  if (swapped) std::swap(a, b);
  builder.result(node, op, {a, b});
}

void add(Builder& builder, const Node& node) {
  binary(builder, node, "Add");
}
void sub(Builder& builder, const Node& node) {
  binary(builder, node, "Sub");
}
/// other - alpha self.
void rsub(Builder& builder, const Node& node) {
  binary(builder, node, "Sub", /*swapped=*/true);
}
void mul(Builder& builder, const Node& node) {
  binary(builder, node, "Mul");
}
void div(Builder& builder, const Node& node) {
  if (has_arg(node, "rounding_mode") && !node.arg("rounding_mode").is_none())
    return divide_whole(builder, node);
  binary(builder, node, "Div");
}
void maximum(Builder& builder, const Node& node) {
  binary(builder, node, "Max");
}
void minimum(Builder& builder, const Node& node) {
  binary(builder, node, "Min");
}

/// Whole numbers to the power of a number as products, which wrap as LibTorch's do: ONNX Runtime raises
/// doubles.
void whole_power(Builder& builder, const Node& node, int64_t exponent) {
  const at::ScalarType type = type_of(*node.output());
  std::string square = operand(builder, node, "self", type), power;
  for (int64_t rest = exponent; rest > 0; rest /= 2) {
    if (rest % 2 == 1) power = power.empty() ? square : builder.call(node, "Mul", {power, square});
    if (rest > 1) square = builder.call(node, "Mul", {square, square});
  }
  if (exponent == 0)  // of the operand's sizes
    return builder.result(
        node, "Add", {builder.call(node, "Mul", {square, builder.scalar(0, type)}), builder.scalar(1, type)});
  builder.alias(node.output(), power);
}

void pow(Builder& builder, const Node& node) {
  const at::ScalarType type = type_of(*node.output());
  if (!at::isFloatingType(type)) {
    constexpr int64_t kMost = 1 << 20;
    const bool fixed = optional_value(node, "exponent") == nullptr;
    const int64_t exponent = fixed ? scalar_arg(node, "exponent").toLong() : -1;
    if (exponent >= 0 && exponent <= kMost) return whole_power(builder, node, exponent);
    if (type != at::kInt && type != at::kLong)
      refuse(node, "expected floats, int32 or int64, or a power of a number from 0 to ", kMost, ", got ",
             c10::toString(type));
  }
  // LibTorch takes the square root, whose result of -inf is NaN.
  const double exponent = optional_value(node, "exponent") == nullptr ? number_arg(node, "exponent") : 1;
  if (exponent == 0.5) return builder.result(node, "Sqrt", {operand(builder, node, "self", type)});
  if (exponent == -0.5) {
    const std::string root = builder.call(node, "Sqrt", {operand(builder, node, "self", type)});
    return builder.result(node, "Reciprocal", {root});
  }
  builder.result(node, "Pow",
                 {operand(builder, node, "self", type), operand(builder, node, "exponent", type)});
}

/// Comparisons, whose result is a bool.
template <const char* const& op>
void compare(Builder& builder, const Node& node) {
  const at::ScalarType type = common_type(node);
  builder.result(node, op, {operand(builder, node, "self", type), operand(builder, node, "other", type)});
}
constexpr const char *kEqual = "Equal", *kLess = "Less", *kLessOrEqual = "LessOrEqual", *kGreater = "Greater",
                     *kGreaterOrEqual = "GreaterOrEqual";

void not_equal(Builder& builder, const Node& node) {
  const at::ScalarType type = common_type(node);
  const Names operands = {operand(builder, node, "self", type), operand(builder, node, "other", type)};
  builder.result(node, "Not", {builder.call(node, "Equal", operands)});
}

void logical_and(Builder& builder, const Node& node) {
  builder.result(node, "And",
                 {operand(builder, node, "self", at::kBool), operand(builder, node, "other", at::kBool)});
}
void logical_or(Builder& builder, const Node& node) {
  builder.result(node, "Or",
                 {operand(builder, node, "self", at::kBool), operand(builder, node, "other", at::kBool)});
}

void logical_xor(Builder& builder, const Node& node) {
  builder.result(node, "Xor",
                 {operand(builder, node, "self", at::kBool), operand(builder, node, "other", at::kBool)});
}

/// The operators &, | and ^ of truth values; those of whole numbers have no form.
template <void (*function)(Builder&, const Node&)>
void bits(Builder& builder, const Node& node) {
  if (type_of(*node.output()) != at::kBool) refuse(node, "expected truth values");
  function(builder, node);
}

void where(Builder& builder, const Node& node) {
  const at::ScalarType type = type_of(*node.output());
  builder.result(node, "Where",
                 {operand(builder, node, "condition", at::kBool), operand(builder, node, "self", type),
                  operand(builder, node, "other", type)});
}

void masked_fill(Builder& builder, const Node& node) {
  const at::ScalarType type = type_of(*node.output());
  builder.result(node, "Where",
                 {operand(builder, node, "mask", at::kBool), operand(builder, node, "value", type),
                  operand(builder, node, "self", type)});
}

}  // namespace

ConverterTable arithmetic_converters() {
  static constexpr Converter kTable[] = {{"aten::add", add},
                                         {"aten::sub", sub},
                                         {"aten::rsub", rsub},
                                         {"aten::mul", mul},
                                         {"aten::div", div},
                                         {"aten::floor_divide", divide_whole},
                                         {"aten::maximum", maximum},
                                         {"aten::minimum", minimum},
                                         {"aten::pow", pow},
                                         {"aten::eq", compare<kEqual>},
                                         {"aten::ne", not_equal},
                                         {"aten::lt", compare<kLess>},
                                         {"aten::le", compare<kLessOrEqual>},
                                         {"aten::gt", compare<kGreater>},
                                         {"aten::ge", compare<kGreaterOrEqual>},
                                         {"aten::logical_and", logical_and},
                                         {"aten::logical_or", logical_or},
                                         {"aten::logical_xor", logical_xor},
                                         {"aten::bitwise_and", bits<logical_and>},
                                         {"aten::bitwise_or", bits<logical_or>},
                                         {"aten::bitwise_xor", bits<logical_xor>},
                                         {"aten::__and__", bits<logical_and>},
                                         {"aten::__or__", bits<logical_or>},
                                         {"aten::__xor__", bits<logical_xor>},
                                         {"aten::where", where},
                                         {"aten::masked_fill", masked_fill}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
