// Arithmetic and comparisons of two tensors, or of a tensor and a number.
#include <torch/types.h>

#include <utility>

#include "ulp/exchange/coreml/converters.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;
using graph::Value;

/// int64 is int32 in the file.
bool is_same(at::ScalarType a, at::ScalarType b) {
  const auto whole = [](at::ScalarType type) { return at::isIntegralType(type, /*includeBool=*/false); };
  return a == b || (whole(a) && whole(b));
}

/// A tensor or a number as a tensor of this type.
std::string operand(Builder& builder, const Node& node, std::string_view argument, at::ScalarType type) {
  const Value* value = optional_value(node, argument);
  if (value == nullptr) return builder.number(number_arg(node, argument), type);
  const std::string& name = builder.name_of(value);
  return is_same(type_of(*value), type) ? name : builder.cast(node, name, type, shape_of(node, *value));
}

std::vector<int64_t> operand_shape(const Node& node, std::string_view argument) {
  const Value* value = optional_value(node, argument);
  return value == nullptr ? std::vector<int64_t>() : shape_of(node, *value);
}

/// MIL has no arithmetic of truth values.
const char* of_truth_values(const Node& node) {
  if (node.is("aten::mul") || node.is("aten::minimum")) return "logical_and";
  if (node.is("aten::add") || node.is("aten::maximum")) return "logical_or";
  refuse(node, "expected numbers, got truth values");
}

/// `op` of self and other, the second one times alpha, in the result's type.
void two(Builder& builder, const Node& node, const char* op, bool swapped = false) {
  const at::ScalarType type = type_of(*node.output());
  if (type == at::kBool) op = of_truth_values(node);
  std::string a = operand(builder, node, "self", type), b = operand(builder, node, "other", type);
  if (has_arg(node, "alpha") && number_arg(node, "alpha") != 1) {
    std::string& scaled = swapped ? a : b;
    scaled =
        builder.call(node, "mul", {{"x", scaled}, {"y", builder.number(number_arg(node, "alpha"), type)}},
                     {type, operand_shape(node, swapped ? "self" : "other")});
  }
  if (swapped) std::swap(a, b);
  builder.result(node, op, {{"x", a}, {"y", b}});
}

void add(Builder& builder, const Node& node) {
  two(builder, node, "add");
}
void sub(Builder& builder, const Node& node) {
  two(builder, node, "sub");
}
/// other - alpha self.
void rsub(Builder& builder, const Node& node) {
  two(builder, node, "sub", /*swapped=*/true);
}
void mul(Builder& builder, const Node& node) {
  two(builder, node, "mul");
}
void div(Builder& builder, const Node& node) {
  if (!has_arg(node, "rounding_mode") || node.arg("rounding_mode").is_none())
    return two(builder, node, "real_div");
  if (text_arg(node, "rounding_mode") != "floor") refuse(node, "expected to round downwards");
  two(builder, node, "floor_div");
}
void floor_divide(Builder& builder, const Node& node) {
  two(builder, node, "floor_div");
}
/// x - y floor(x / y).
void remainder(Builder& builder, const Node& node) {
  two(builder, node, "mod");
}
void maximum(Builder& builder, const Node& node) {
  two(builder, node, "maximum");
}
void minimum(Builder& builder, const Node& node) {
  two(builder, node, "minimum");
}

void pow(Builder& builder, const Node& node) {
  const at::ScalarType type = type_of(*node.output());
  builder.result(
      node, "pow",
      {{"x", operand(builder, node, "self", type)}, {"y", operand(builder, node, "exponent", type)}});
}

/// Comparisons, whose result is a bool.
template <const char* const& op>
void compare(Builder& builder, const Node& node) {
  const at::ScalarType type = common_type(node);
  builder.result(node, op,
                 {{"x", operand(builder, node, "self", type)}, {"y", operand(builder, node, "other", type)}});
}
constexpr const char *kEqual = "equal", *kNotEqual = "not_equal", *kLess = "less", *kLessEqual = "less_equal",
                     *kGreater = "greater", *kGreaterEqual = "greater_equal";

template <const char* const& op>
void logical(Builder& builder, const Node& node) {
  builder.result(
      node, op,
      {{"x", operand(builder, node, "self", at::kBool)}, {"y", operand(builder, node, "other", at::kBool)}});
}
constexpr const char *kAnd = "logical_and", *kOr = "logical_or";

/// `a` where `condition` holds, else `b`. The operation takes its result's sizes from `a` and `b`.
void choose(Builder& builder, const Node& node, const char* condition, const char* a, const char* b) {
  const at::ScalarType type = type_of(*node.output());
  const std::vector<int64_t> shape = shape_of(node);
  std::string first = operand(builder, node, a, type);
  const std::string second = operand(builder, node, b, type);
  if (operand_shape(node, a) != shape && operand_shape(node, b) != shape) {
    if (type == at::kBool) refuse(node, "expected choices of the result's sizes");
    const std::string zeros = builder.constant(torch::zeros(shape, type), "zeros");
    first = binary(builder, node, "add", first, zeros);
  }
  builder.result(node, "select",
                 {{"cond", operand(builder, node, condition, at::kBool)}, {"a", first}, {"b", second}});
}

void where(Builder& builder, const Node& node) {
  choose(builder, node, "condition", "self", "other");
}
void masked_fill(Builder& builder, const Node& node) {
  choose(builder, node, "mask", "value", "self");
}

}  // namespace

std::string binary(Builder& builder, const Node& node, const char* op, const std::string& x,
                   const std::string& y) {
  return builder.call(node, op, {{"x", x}, {"y", y}});
}

ConverterTable arithmetic_converters() {
  static constexpr Converter kTable[] = {{"aten::add", add},
                                         {"aten::sub", sub},
                                         {"aten::rsub", rsub},
                                         {"aten::mul", mul},
                                         {"aten::div", div},
                                         {"aten::floor_divide", floor_divide},
                                         {"aten::remainder", remainder},
                                         {"aten::maximum", maximum},
                                         {"aten::minimum", minimum},
                                         {"aten::pow", pow},
                                         {"aten::eq", compare<kEqual>},
                                         {"aten::ne", compare<kNotEqual>},
                                         {"aten::lt", compare<kLess>},
                                         {"aten::le", compare<kLessEqual>},
                                         {"aten::gt", compare<kGreater>},
                                         {"aten::ge", compare<kGreaterEqual>},
                                         {"aten::logical_and", logical<kAnd>},
                                         {"aten::logical_or", logical<kOr>},
                                         {"aten::where", where},
                                         {"aten::masked_fill", masked_fill}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
