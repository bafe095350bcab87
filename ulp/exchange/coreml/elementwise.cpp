// Functions of one tensor, element by element: activations above all.
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "ulp/exchange/coreml/converters.h"
#include "ulp/graph/fusion/activation_of.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;

std::string x_of(Builder& builder, const Node& node) {
  return builder.name_of(node.args.at(0).value);
}

std::string number_of(Builder& builder, const Node& node, double value) {
  return builder.number(value, type_of(*node.output()));
}

/// Ops whose form is one operation of x alone.
struct Same {
  std::string_view op;
  const char* form;
};
constexpr Same kSame[] = {{"aten::relu", "relu"}, {"aten::sigmoid", "sigmoid"}, {"aten::tanh", "tanh"},
                          {"aten::silu", "silu"}, {"aten::exp", "exp"},         {"aten::sqrt", "sqrt"},
                          {"aten::abs", "abs"},   {"aten::floor", "floor"},     {"aten::ceil", "ceil"},
                          {"aten::sin", "sin"},   {"aten::cos", "cos"},         {"aten::erf", "erf"},
                          {"aten::sign", "sign"}, {"aten::sgn", "sign"},        {"aten::square", "square"},
                          {"aten::tan", "tan"},   {"aten::asin", "asin"},       {"aten::acos", "acos"},
                          {"aten::atan", "atan"}, {"aten::arctan", "atan"},     {"aten::sinh", "sinh"},
                          {"aten::cosh", "cosh"}, {"aten::exp2", "exp2"}};

void same(Builder& builder, const Node& node) {
  for (const auto& [op, form] : kSame) {
    if (node.is(op)) return builder.result(node, form, {{"x", x_of(builder, node)}});
  }
}

void round(Builder& builder, const Node& node) {
  const Decimals decimals = decimals_of(node);
  const std::string x = x_of(builder, node);
  if (decimals.power == 1) return builder.result(node, "round", {{"x", x}});
  const std::string power = number_of(builder, node, decimals.power);
  const char *first = decimals.multiply ? "mul" : "real_div", *last = decimals.multiply ? "real_div" : "mul";
  const std::string rounded = builder.call(node, "round", {{"x", binary(builder, node, first, x, power)}});
  builder.result(node, last, {{"x", rounded}, {"y", power}});
}

void gelu(Builder& builder, const Node& node) {
  const char* mode = text_arg(node, "approximate") == "tanh" ? "TANH_APPROXIMATION" : "EXACT";
  builder.result(node, "gelu", {{"x", x_of(builder, node)}, {"mode", builder.word(mode)}});
}

/// min(max(x / 6 + 1 / 2, 0), 1).
Inputs sixth(Builder& builder, const Node& node) {
  return {{"x", x_of(builder, node)},
          {"alpha", number_of(builder, node, 1.0 / 6)},
          {"beta", number_of(builder, node, 0.5)}};
}

void hardsigmoid(Builder& builder, const Node& node) {
  builder.result(node, "sigmoid_hard", sixth(builder, node));
}

void hardswish(Builder& builder, const Node& node) {
  builder.result(
      node, "mul",
      {{"x", x_of(builder, node)}, {"y", builder.call(node, "sigmoid_hard", sixth(builder, node))}});
}

/// relu6, hardtanh, clamp, clamp_min and clamp_max.
void clamp(Builder& builder, const Node& node) {
  const auto bounds = graph::clamp_bounds(node);
  if (!bounds) refuse(node, "expected bounds that are numbers");
  const std::string x = x_of(builder, node);
  const bool low = !std::isinf(bounds->low), high = !std::isinf(bounds->high);
  if (!low && !high) return builder.alias(node.output(), x);
  const bool both = low && high;
  if (both && at::isFloatingType(type_of(*node.output())))
    return builder.result(node, "clip",
                          {{"x", x},
                           {"alpha", number_of(builder, node, bounds->low)},
                           {"beta", number_of(builder, node, bounds->high)}});
  if (!high) return builder.result(node, "maximum", {{"x", x}, {"y", number_of(builder, node, bounds->low)}});
  const std::string above =
      low ? binary(builder, node, "maximum", x, number_of(builder, node, bounds->low)) : x;
  builder.result(node, "minimum", {{"x", above}, {"y", number_of(builder, node, bounds->high)}});
}

void leaky_relu(Builder& builder, const Node& node) {
  builder.result(
      node, "leaky_relu",
      {{"x", x_of(builder, node)}, {"alpha", number_of(builder, node, number_arg(node, "negative_slope"))}});
}

void elu(Builder& builder, const Node& node) {
  if (number_arg(node, "scale") != 1 || number_arg(node, "input_scale") != 1)
    refuse(node, "expected scale and input_scale to be 1");
  builder.result(
      node, "elu",
      {{"x", x_of(builder, node)}, {"alpha", number_of(builder, node, number_arg(node, "alpha"))}});
}

/// log(1 + exp(x)).
void softplus(Builder& builder, const Node& node) {
  check_softplus(node);
  builder.result(node, "softplus", {{"x", x_of(builder, node)}});
}

void mish(Builder& builder, const Node& node) {
  const std::string x = x_of(builder, node);
  const std::string soft = builder.call(node, "softplus", {{"x", x}});
  builder.result(node, "mul", {{"x", x}, {"y", builder.call(node, "tanh", {{"x", soft}})}});
}

void log_sigmoid(Builder& builder, const Node& node) {
  const std::string minus = number_of(builder, node, -1);
  const std::string soft =
      builder.call(node, "softplus", {{"x", binary(builder, node, "mul", x_of(builder, node), minus)}});
  builder.result(node, "mul", {{"x", soft}, {"y", minus}});
}

/// One slope for all, or one a channel; Core ML wants the latter.
void prelu(Builder& builder, const Node& node) {
  const graph::Value& x = *value_arg(node, "self");
  const at::Tensor slope = builder.graph().attribute_tensor(value_arg(node, "weight"));
  if (!slope.defined()) refuse(node, "expected a slope that is stored");
  if (rank_of(node, x) < 3) refuse(node, "expected images or sequences");
  const torch::NoGradGuard no_grad;
  const at::Tensor each = slope.detach().expand({fixed_size(node, x, 1)}).contiguous();
  builder.result(node, "prelu",
                 {{"x", builder.name_of(&x)}, {"alpha", builder.constant(each, node.name() + "_slope")}});
}

/// x in the result's type, which a softmax may be given.
std::string typed_x(Builder& builder, const Node& node) {
  const graph::Value& x = *node.args.at(0).value;
  const at::ScalarType type = type_of(*node.output());
  return type_of(x) == type ? builder.name_of(&x)
                            : builder.cast(node, builder.name_of(&x), type, shape_of(node, x));
}

void softmax(Builder& builder, const Node& node) {
  builder.result(node, "softmax",
                 {{"x", typed_x(builder, node)}, {"axis", builder.integer(int_arg(node, "dim"))}});
}

/// x - log(sum(exp(x))).
void log_softmax(Builder& builder, const Node& node) {
  const int64_t dim = dim_arg(node, "dim", rank_of(node, *node.output()));
  std::vector<int64_t> shape = shape_of(node);
  shape.at(static_cast<size_t>(dim)) = 1;
  const std::string x = typed_x(builder, node);
  const std::string sum =
      builder.call(node, "reduce_log_sum_exp", reduction(builder, x, {dim}, /*keep=*/true),
                   {type_of(*node.output()), shape});
  builder.result(node, "sub", {{"x", x}, {"y", sum}});
}

/// Core ML adds a number to what it takes the logarithm of; the smallest one changes nothing.
void log(Builder& builder, const Node& node) {
  builder.result(node, "log", {{"x", x_of(builder, node)}, {"epsilon", number_of(builder, node, 1e-45)}});
}

/// Its own inverse and rsqrt add a number first.
void reciprocal(Builder& builder, const Node& node) {
  builder.result(node, "real_div", {{"x", number_of(builder, node, 1)}, {"y", x_of(builder, node)}});
}

void rsqrt(Builder& builder, const Node& node) {
  builder.result(
      node, "real_div",
      {{"x", number_of(builder, node, 1)}, {"y", builder.call(node, "sqrt", {{"x", x_of(builder, node)}})}});
}

void neg(Builder& builder, const Node& node) {
  builder.result(node, "mul", {{"x", x_of(builder, node)}, {"y", number_of(builder, node, -1)}});
}

void logical_not(Builder& builder, const Node& node) {
  const graph::Value& value = *node.args.at(0).value;
  const std::string x = builder.name_of(&value);
  const bool is_bool = type_of(value) == at::kBool;
  builder.result(node, "logical_not",
                 {{"x", is_bool ? x : builder.cast(node, x, at::kBool, shape_of(node, value))}});
}

/// Integers of 32 bits as those that these bits hold, as LibTorch casts them.
std::string wrapped(Builder& builder, const Node& node, const std::string& x, at::ScalarType to) {
  const bool has_sign = to != at::kByte;
  const auto range = static_cast<double>(int64_t{1} << (8 * c10::elementSize(to)));
  const auto of = [&](const char* op, const std::string& value, double number) {
    return builder.call(node, op, {{"x", value}, {"y", builder.number(number, at::kInt)}});
  };
  const std::string rest = of("mod", x, range);
  return has_sign ? of("sub", of("mod", of("add", rest, range / 2), range), range / 2) : rest;
}

/// What does nothing in eval mode, and changes of type.
void identity(Builder& builder, const Node& node) {
  const graph::Value& x = *node.args.at(0).value;
  if (has_arg(node, "train") && bool_arg(node, "train")) refuse(node, "expected no dropout in eval mode");
  const at::ScalarType from = type_of(x), to = type_of(*node.output());
  const bool integers = at::isIntegralType(from, /*includeBool=*/false) && at::isIntegralType(to, false);
  std::string name = builder.name_of(&x);
  if (from != to && !integers) name = builder.cast(node, name, to, shape_of(node));
  const bool narrow = to == at::kByte || to == at::kChar || to == at::kShort;
  const bool fits =
      from == to || from == at::kBool || (to == at::kShort && (from == at::kByte || from == at::kChar));
  builder.alias(node.output(), narrow && !fits ? wrapped(builder, node, name, to) : name);
}

/// +1 where x >= 0, else -1.
void binarize(Builder& builder, const Node& node) {
  const at::ScalarType type = type_of(*node.output());
  const std::string positive =
      builder.call(node, "greater_equal", {{"x", x_of(builder, node)}, {"y", builder.number(0, type)}},
                   {at::kBool, shape_of(node)});
  const std::string twice = binary(builder, node, "mul", builder.cast(node, positive, type, shape_of(node)),
                                   builder.number(2, type));
  builder.result(node, "sub", {{"x", twice}, {"y", builder.number(1, type)}});
}

}  // namespace

ConverterTable elementwise_converters() {
  static const std::vector<Converter> table = [] {
    std::vector<Converter> rows = {{"aten::round", round},
                                   {"aten::gelu", gelu},
                                   {"aten::hardsigmoid", hardsigmoid},
                                   {"aten::hardswish", hardswish},
                                   {"aten::relu6", clamp},
                                   {"aten::hardtanh", clamp},
                                   {"aten::clamp", clamp},
                                   {"aten::clamp_min", clamp},
                                   {"aten::clamp_max", clamp},
                                   {"aten::leaky_relu", leaky_relu},
                                   {"aten::elu", elu},
                                   {"aten::softplus", softplus},
                                   {"aten::mish", mish},
                                   {"aten::log_sigmoid", log_sigmoid},
                                   {"aten::prelu", prelu},
                                   {"aten::softmax", softmax},
                                   {"aten::_softmax", softmax},
                                   {"aten::log_softmax", log_softmax},
                                   {"aten::_log_softmax", log_softmax},
                                   {"aten::log", log},
                                   {"aten::reciprocal", reciprocal},
                                   {"aten::rsqrt", rsqrt},
                                   {"aten::neg", neg},
                                   {"aten::logical_not", logical_not},
                                   {"aten::dropout", identity},
                                   {"aten::feature_dropout", identity},
                                   {"aten::alpha_dropout", identity},
                                   {"aten::contiguous", identity},
                                   {"aten::clone", identity},
                                   {"aten::detach", identity},
                                   {"aten::alias", identity},
                                   {"aten::lift_fresh", identity},
                                   {"aten::to", identity},
                                   {"aten::_to_copy", identity},
                                   {"aten::type_as", identity},
                                   {"ulp::binarize", binarize}};
    for (const auto& [op, form] : kSame) rows.push_back({op, same});
    return rows;
  }();
  return table;
}

}  // namespace ulp::exchange::coreml
