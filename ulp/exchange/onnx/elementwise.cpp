// Functions of one tensor, element by element: activations above all.
#include <cmath>
#include <limits>
#include <numbers>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;

/// The first argument in the result's type: exp of integers, say, is a float.
std::string x_of(Builder& builder, const Node& node) {
  return builder.name_as(node, *node.args.at(0).value, type_of(*node.output()));
}

/// Ops whose ONNX form is one operator of one tensor, without attributes.
struct Same {
  std::string_view op;
  const char* onnx;
};
constexpr Same kSame[] = {{"aten::sigmoid", "Sigmoid"},
                          {"aten::tanh", "Tanh"},
                          {"aten::hardswish", "HardSwish"},
                          {"aten::exp", "Exp"},
                          {"aten::log", "Log"},
                          {"aten::sqrt", "Sqrt"},
                          {"aten::abs", "Abs"},
                          {"aten::neg", "Neg"},
                          {"aten::sin", "Sin"},
                          {"aten::cos", "Cos"},
                          {"aten::erf", "Erf"},
                          {"aten::sign", "Sign"},
                          {"aten::sgn", "Sign"},
                          {"aten::reciprocal", "Reciprocal"},
                          {"aten::tan", "Tan"},
                          {"aten::asin", "Asin"},
                          {"aten::acos", "Acos"},
                          {"aten::atan", "Atan"},
                          {"aten::sinh", "Sinh"},
                          {"aten::cosh", "Cosh"},
                          {"aten::asinh", "Asinh"},
                          {"aten::acosh", "Acosh"},
                          {"aten::atanh", "Atanh"},
                          {"aten::selu", "Selu"}};

void same(Builder& builder, const Node& node) {
  for (const auto& [op, onnx] : kSame) {
    if (node.is(op)) return builder.result(node, onnx, {x_of(builder, node)});
  }
}

/// round, floor and ceil. Integers stay as they are; ONNX has these operators of floats alone.
void round(Builder& builder, const Node& node) {
  const Decimals decimals = decimals_of(node);
  const std::string x = x_of(builder, node);
  if (!at::isFloatingType(type_of(*node.output()))) return builder.alias(node.output(), x);
  const char* whole = node.is("aten::floor") ? "Floor" : node.is("aten::ceil") ? "Ceil" : "Round";
  if (decimals.power == 1) return builder.result(node, whole, {x});
  const std::string power = builder.scalar(decimals.power, type_of(*node.output()));
  const std::string scaled = builder.call(node, decimals.multiply ? "Mul" : "Div", {x, power});
  builder.result(node, decimals.multiply ? "Div" : "Mul", {builder.call(node, "Round", {scaled}), power});
}

void silu(Builder& builder, const Node& node) {
  const std::string x = x_of(builder, node);
  builder.result(node, "Mul", {x, builder.call(node, "Sigmoid", {x})});
}

/// x Phi(x), or its approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), spelled out where the opset has no
/// operator for it.
void gelu(Builder& builder, const Node& node) {
  constexpr int64_t kFirstOpset = 20;
  constexpr double kCubic = 0.044715;
  const std::string approximate = text_arg(node, "approximate"), x = x_of(builder, node);
  if (builder.opset() >= kFirstOpset)
    return builder.result(node, "Gelu", {x}, {{"approximate", approximate}});
  const auto number = [&](double value) { return builder.scalar(value, type_of(*node.output())); };
  const auto times = [&](const std::string& a, const std::string& b) {
    return builder.call(node, "Mul", {a, b});
  };
  std::string curve;
  if (approximate == "tanh") {
    const std::string cube = times(times(x, x), times(x, number(kCubic)));
    const std::string inner = builder.call(node, "Add", {x, cube});
    curve = builder.call(node, "Tanh", {times(inner, number(std::sqrt(2 / std::numbers::pi)))});
  } else {
    curve = builder.call(node, "Erf", {times(x, number(1 / std::numbers::sqrt2))});
  }
  builder.result(node, "Mul", {times(x, number(0.5)), builder.call(node, "Add", {curve, number(1)})});
}

void hardsigmoid(Builder& builder, const Node& node) {
  builder.result(node, "HardSigmoid", {x_of(builder, node)}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}});
}

/// relu of whole numbers, relu6, hardtanh, clamp, clamp_min and clamp_max. A bound that is left out is the largest finite number to ONNX
/// Runtime, which would not let infinities pass.
void clamp(Builder& builder, const Node& node) {
  const Bounds bounds = bounds_of(node);
  const at::ScalarType type = type_of(*node.output());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto bound = [&](const std::optional<c10::Scalar>& value, double open) {
    if (value) return builder.scalar(*value, type);
    return at::isFloatingType(type) ? builder.scalar(open, type) : std::string();
  };
  builder.result(node, "Clip",
                 {x_of(builder, node), bound(bounds.low, -kInfinity), bound(bounds.high, kInfinity)});
}

/// Relu is there of floats alone.
void relu(Builder& builder, const Node& node) {
  if (!at::isFloatingType(type_of(*node.output()))) return clamp(builder, node);
  builder.result(node, "Relu", {x_of(builder, node)});
}

void leaky_relu(Builder& builder, const Node& node) {
  builder.result(node, "LeakyRelu", {x_of(builder, node)},
                 {{"alpha", static_cast<float>(number_arg(node, "negative_slope"))}});
}

void elu(Builder& builder, const Node& node) {
  if (number_arg(node, "scale") != 1 || number_arg(node, "input_scale") != 1)
    refuse(node, "expected scale and input_scale to be 1");
  builder.result(node, "Elu", {x_of(builder, node)},
                 {{"alpha", static_cast<float>(number_arg(node, "alpha"))}});
}

/// log(1 + exp(beta x)) / beta, and x from a threshold of beta x on, where that is another number.
void softplus(Builder& builder, const Node& node) {
  constexpr double kUsual = 20;
  const std::string x = x_of(builder, node);
  const double beta = number_arg(node, "beta"), threshold = number_arg(node, "threshold");
  if (beta == 1 && threshold >= kUsual) return builder.result(node, "Softplus", {x});
  const at::ScalarType type = type_of(*node.output());
  const std::string factor = builder.scalar(beta, type), scaled = builder.call(node, "Mul", {x, factor});
  const std::string curve = builder.call(node, "Div", {builder.call(node, "Softplus", {scaled}), factor});
  const std::string far = builder.call(node, "Greater", {scaled, builder.scalar(threshold, type)});
  builder.result(node, "Where", {far, x, curve});
}

void mish(Builder& builder, const Node& node) {
  const std::string x = x_of(builder, node);
  const std::string softplus = builder.call(node, "Softplus", {x});
  builder.result(node, "Mul", {x, builder.call(node, "Tanh", {softplus})});
}

void log_sigmoid(Builder& builder, const Node& node) {
  const std::string negative = builder.call(node, "Neg", {x_of(builder, node)});
  builder.result(node, "Neg", {builder.call(node, "Softplus", {negative})});
}

/// One slope for all, or one a channel.
void prelu(Builder& builder, const Node& node) {
  const graph::Value& slope = *value_arg(node, "weight");
  std::vector<int64_t> shape(static_cast<size_t>(rank_of(node, *value_arg(node, "self")) - 1), 1);
  if (!shape.empty()) shape[0] = -1;
  const std::string shaped = builder.call(node, "Reshape", {builder.name_of(&slope), builder.ints(shape)});
  builder.result(node, "PRelu", {builder.in(node, "self"), shaped});
}

void softmax(Builder& builder, const Node& node) {
  const bool log = node.op().find("log") != std::string_view::npos;
  builder.result(node, log ? "LogSoftmax" : "Softmax", {x_of(builder, node)},
                 {{"axis", int_arg(node, "dim")}});
}

void rsqrt(Builder& builder, const Node& node) {
  builder.result(node, "Reciprocal", {builder.call(node, "Sqrt", {x_of(builder, node)})});
}

void square(Builder& builder, const Node& node) {
  const std::string x = x_of(builder, node);
  builder.result(node, "Mul", {x, x});
}

void logical_not(Builder& builder, const Node& node) {
  const graph::Value& x = *node.args.at(0).value;
  if (type_of(x) != at::kBool && node.is("aten::bitwise_not")) refuse(node, "expected truth values");
  builder.result(node, "Not", {builder.name_as(node, x, at::kBool)});
}

/// What does nothing in eval mode, and changes of type.
void identity(Builder& builder, const Node& node) {
  const graph::Value& x = *node.args.at(0).value;
  if (has_arg(node, "train") && bool_arg(node, "train")) refuse(node, "expected no dropout in eval mode");
  if (type_of(x) == type_of(*node.output())) return builder.alias(node.output(), builder.name_of(&x));
  builder.result(node, "Cast", {builder.name_of(&x)},
                 {{"to", int64_t{data_type(type_of(*node.output()), node.name())}}});
}

/// +1 where x >= 0, else -1.
void binarize(Builder& builder, const Node& node) {
  const at::ScalarType type = type_of(*node.output());
  const std::string positive =
      builder.call(node, "GreaterOrEqual", {x_of(builder, node), builder.scalar(0, type)});
  builder.result(node, "Where", {positive, builder.scalar(1, type), builder.scalar(-1, type)});
}

}  // namespace

ConverterTable elementwise_converters() {
  static const std::vector<Converter> table = [] {
    std::vector<Converter> rows = {{"aten::round", round},
                                   {"aten::floor", round},
                                   {"aten::ceil", round},
                                   {"aten::silu", silu},
                                   {"aten::gelu", gelu},
                                   {"aten::hardsigmoid", hardsigmoid},
                                   {"aten::relu", relu},
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
                                   {"aten::log_softmax", softmax},
                                   {"aten::_log_softmax", softmax},
                                   {"aten::rsqrt", rsqrt},
                                   {"aten::square", square},
                                   {"aten::logical_not", logical_not},
                                   {"aten::bitwise_not", logical_not},
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
    for (const auto& [op, onnx] : kSame) rows.push_back({op, same});
    return rows;
  }();
  return table;
}

}  // namespace ulp::exchange::onnx
