// Functions that ONNX has in other words: elementwise ones in several operators.
#include <cmath>
#include <numbers>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

/// Writes formulas: each function is an operator, in the type of the node's result.
class Formula {
 public:
  Formula(Builder& builder, const Node& node)
      : builder_(builder), node_(node), type_(type_of(*node.output())) {}

  /// An argument as a tensor of the result's type: a tensor of the graph, or a number.
  std::string argument(std::string_view name) { return argument(name, type_); }
  std::string argument(std::string_view name, at::ScalarType type) {
    const Value* value = optional_value(node_, name);
    if (value == nullptr) return builder_.scalar(scalar_arg(node_, name), type);
    return builder_.name_as(node_, *value, type);
  }
  std::string x() { return argument("self"); }
  std::string number(double value) { return builder_.scalar(value, type_); }
  std::string call(const std::string& op, Names inputs, Attributes attributes = {}) {
    return builder_.call(node_, op, std::move(inputs), std::move(attributes));
  }
  std::string add(const std::string& a, const std::string& b) { return call("Add", {a, b}); }
  std::string sub(const std::string& a, const std::string& b) { return call("Sub", {a, b}); }
  std::string mul(const std::string& a, const std::string& b) { return call("Mul", {a, b}); }
  std::string div(const std::string& a, const std::string& b) { return call("Div", {a, b}); }
  void result(const std::string& op, Names inputs, Attributes attributes = {}) {
    builder_.result(node_, op, std::move(inputs), std::move(attributes));
  }
  std::string cast(const std::string& made) { return builder_.cast(node_, made, type_); }
  std::string cast(const std::string& made, at::ScalarType type) {
    return type == type_ ? made : builder_.cast(node_, made, type);
  }
  void alias(const std::string& made) { builder_.alias(node_.output(), made); }
  bool floats() const { return at::isFloatingType(type_); }
  at::ScalarType type() const { return type_; }

 private:
  Builder& builder_;
  const Node& node_;
  at::ScalarType type_;
};

/// Of floats; whole numbers are neither.
void is_nan_or_infinite(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  if (!at::isFloatingType(type_of(x))) refuse(node, "expected floats");
  // ONNX Runtime has IsInf of float16 since opset 20 alone.
  builder.result(node, node.is("aten::isnan") ? "IsNaN" : "IsInf", {builder.name_as(node, x, at::kFloat)});
}

// Activations.

/// ONNX has it of float32 alone.
void celu(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const double alpha = number_arg(node, "alpha");
  const std::string x = write.x();
  if (write.type() == at::kFloat) return write.result("Celu", {x}, {{"alpha", static_cast<float>(alpha)}});
  const std::string below =
      write.mul(write.call("Elu", {write.div(x, write.number(alpha))}), write.number(alpha));
  write.result("Where", {write.call("Greater", {x, write.number(0)}), x, below});
}

/// Where x is beyond the limit on either side, it comes nearer by that; NaN stays, which Shrink has not.
void softshrink(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const std::string x = write.x(), limit = write.argument("lambd"), minus = write.call("Neg", {limit});
  const std::string below = write.call(
      "Where", {write.call("Less", {x, minus}), write.add(x, limit), write.mul(x, write.number(0))});
  write.result("Where", {write.call("Greater", {x, limit}), write.sub(x, limit), below});
}

void hardshrink(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const std::string x = write.x(), limit = write.argument("lambd");
  write.result("Where", {write.call("LessOrEqual", {write.call("Abs", {x}), limit}), write.number(0), x});
}

/// x where it is above the threshold, else a number; NaN stays.
void threshold(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const std::string x = write.x();
  write.result("Where",
               {write.call("LessOrEqual", {x, write.argument("threshold")}), write.argument("value"), x});
}

/// One half of a dimension times the sigmoid of the other.
void glu(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const int64_t dim = int_arg(node, "dim"), half = fixed_size(node, *node.output(), dim);
  const Names halves =
      builder.calls(node, "Split", 2, {write.x(), builder.ints({half, half})}, {{"axis", dim}});
  write.result("Mul", {halves[0], write.call("Sigmoid", {halves[1]})});
}

// Logarithms and powers, exact near 0: with u = 1 + x rounded, log(u) x / (u - 1) has the rounding of u in
// both of its places.

std::string log_of_one_and(Formula& write, const std::string& x) {
  const std::string u = write.add(x, write.number(1));
  const std::string quotient = write.div(x, write.sub(u, write.number(1)));
  const std::string whole = write.mul(write.call("Log", {u}), quotient);
  const std::string far = write.call("Where", {write.call("Equal", {u, x}), write.call("Log", {u}), whole});
  return write.call("Where", {write.call("Equal", {u, write.number(1)}), x, far});
}

void log1p(Builder& builder, const Node& node) {
  Formula write(builder, node);
  builder.alias(node.output(), log_of_one_and(write, write.x()));
}

void expm1(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const std::string x = write.x(), u = write.call("Exp", {x}), less = write.sub(u, write.number(1));
  const std::string whole = write.mul(less, write.div(x, write.call("Log", {u})));
  // Where exp(x) is infinite or 0, the logarithm says nothing.
  const std::string near = write.call("Less", {write.call("Abs", {x}), write.number(1)});
  const std::string exact = write.call("Where", {write.call("Equal", {u, write.number(1)}), x, whole});
  write.result("Where", {near, exact, less});
}

void log_of_base(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const double base = node.is("aten::log2") ? std::numbers::ln2 : std::numbers::ln10;
  write.result("Div", {write.call("Log", {write.x()}), write.number(base)});
}

void exp2(Builder& builder, const Node& node) {
  Formula write(builder, node);
  write.result("Pow", {write.number(2), write.x()});
}

void erfc(Builder& builder, const Node& node) {
  Formula write(builder, node);
  write.result("Sub", {write.number(1), write.call("Erf", {write.x()})});
}

/// log(exp(a) + exp(b)); of two infinities of one sign it is that.
void logaddexp(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const std::string a = write.x(), b = write.argument("other");
  const std::string apart = write.call("Neg", {write.call("Abs", {write.sub(a, b)})});
  const std::string more = log_of_one_and(write, write.call("Exp", {apart}));
  const std::string largest = write.call("Max", {a, b});
  const std::string same =
      write.call("And", {write.call("Equal", {a, b}), write.call("IsInf", {write.cast(a, at::kFloat)})});
  write.result("Where", {same, a, write.add(largest, more)});
}

// Whole parts.

std::string truncated(Formula& write, const std::string& x) {
  return write.mul(write.call("Sign", {x}), write.call("Floor", {write.call("Abs", {x})}));
}

void trunc(Builder& builder, const Node& node) {
  Formula write(builder, node);
  if (!write.floats()) return builder.alias(node.output(), write.x());
  builder.alias(node.output(), truncated(write, write.x()));
}

void frac(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const std::string x = write.x();
  write.result("Sub", {x, truncated(write, x)});
}

/// The remainder with the sign of the divisor: of floats ONNX has the one with the sign of the dividend.
std::string remainder_of(Formula& write, const std::string& a, const std::string& b) {
  if (!write.floats()) return write.call("Mod", {a, b});
  const std::string zero = write.number(0), mod = write.call("Mod", {a, b}, {{"fmod", int64_t{1}}});
  const std::string other =
      write.call("Xor", {write.call("Less", {mod, zero}), write.call("Less", {b, zero})});
  const std::string left = write.call("Not", {write.call("Equal", {mod, zero})});
  return write.call("Where", {write.call("And", {left, other}), write.add(mod, b), mod});
}

void remainder(Builder& builder, const Node& node) {
  Formula write(builder, node);
  builder.alias(node.output(), remainder_of(write, write.x(), write.argument("other")));
}

/// The quotient, which is rounded to 0, less 1 where something is left whose sign is not the divisor's.
void floor_of_whole(Formula& write, const std::string& a, const std::string& b) {
  const std::string quotient = write.div(a, b), left = write.sub(a, write.mul(quotient, b));
  const std::string zero = write.number(0);
  const std::string other =
      write.call("Xor", {write.call("Less", {left, zero}), write.call("Less", {b, zero})});
  const std::string some = write.call("Not", {write.call("Equal", {left, zero})});
  write.alias(write.sub(quotient, write.cast(write.call("And", {some, other}))));
}

void fmod(Builder& builder, const Node& node) {
  Formula write(builder, node);
  write.result("Mod", {write.x(), write.argument("other")}, {{"fmod", int64_t{1}}});
}

void addcmul(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const bool product = node.is("aten::addcmul");
  const std::string a = write.argument("tensor1"), b = write.argument("tensor2");
  const std::string scaled = write.mul(a, write.argument("value"));
  write.result("Add", {write.x(), product ? write.mul(scaled, b) : write.div(scaled, b)});
}

/// self + weight (end - self), from the nearer end.
void lerp(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const std::string x = write.x(), end = write.argument("end");
  const double weight = number_arg(node, "weight");
  const std::string span = write.sub(end, x);
  if (std::abs(weight) < 0.5) return write.result("Add", {x, write.mul(span, write.number(weight))});
  write.result("Sub", {end, write.mul(span, write.number(1 - weight))});
}

}  // namespace

void divide_whole(Builder& builder, const Node& node) {
  Formula write(builder, node);
  const std::string mode = node.is("aten::floor_divide") ? "floor" : text_arg(node, "rounding_mode"),
                    a = write.x(), b = write.argument("other");
  if (mode == "trunc") {
    const std::string quotient = write.div(a, b);
    return builder.alias(node.output(), write.floats() ? truncated(write, quotient) : quotient);
  }
  if (mode != "floor") refuse(node, "expected rounding_mode trunc or floor");
  if (!write.floats()) return floor_of_whole(write, a, b);
  // Less its remainder, the dividend is a multiple of the divisor.
  const std::string whole = write.div(write.sub(a, remainder_of(write, a, b)), b);
  const std::string rounded = write.call("Round", {whole});
  if (optional_value(node, "other") == nullptr && number_arg(node, "other") != 0)
    return builder.alias(node.output(), rounded);
  write.result("Where", {write.call("Equal", {b, write.number(0)}), write.div(a, b), rounded});
}

ConverterTable spelled_converters() {
  static constexpr Converter kTable[] = {{"aten::isnan", is_nan_or_infinite},
                                         {"aten::isinf", is_nan_or_infinite},
                                         {"aten::celu", celu},
                                         {"aten::softshrink", softshrink},
                                         {"aten::hardshrink", hardshrink},
                                         {"aten::threshold", threshold},
                                         {"aten::glu", glu},
                                         {"aten::log1p", log1p},
                                         {"aten::expm1", expm1},
                                         {"aten::log2", log_of_base},
                                         {"aten::log10", log_of_base},
                                         {"aten::exp2", exp2},
                                         {"aten::erfc", erfc},
                                         {"aten::logaddexp", logaddexp},
                                         {"aten::trunc", trunc},
                                         {"aten::frac", frac},
                                         {"aten::remainder", remainder},
                                         {"aten::fmod", fmod},
                                         {"aten::addcmul", addcmul},
                                         {"aten::addcdiv", addcmul},
                                         {"aten::lerp.Scalar", lerp}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
