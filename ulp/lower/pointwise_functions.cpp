// What each op of ATen is in functions of the pointwise step.
#include "ulp/lower/pointwise_functions.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/graph/describe.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"
#include "ulp/lower/pointwise.h"
#include "ulp/lower/pointwise_special.h"

namespace ulp::lowering {
namespace {

using graph::Node;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One function of `self`.
template <PointwiseOp op>
Operand unary(PointwiseWriter& write, const Node& node) {
  return write.call(op, {write.argument(node, "self")});
}

/// One function of `self` and `other`.
template <PointwiseOp op>
Operand binary(PointwiseWriter& write, const Node& node) {
  return write.call(op, {write.argument(node, "self"), write.argument(node, "other")});
}

bool is_truth(const Node& node) {
  const std::optional<graph::TensorMeta>& meta = node.output()->meta;
  return meta && meta->dtype == at::kBool;
}

/// self op alpha * other.
template <PointwiseOp op>
Operand sum(PointwiseWriter& write, const Node& node) {
  if (is_truth(node)) return binary<PointwiseOp::logical_or>(write, node);
  Operand other = write.argument(node, "other");
  const double alpha = number_arg(node, "alpha").value_or(1);
  if (alpha != 1) other = write.call(PointwiseOp::mul, {other, write.number(alpha)});
  return write.call(op, {write.argument(node, "self"), other});
}

Operand rsub(PointwiseWriter& write, const Node& node) {
  Operand self = write.argument(node, "self");
  const double alpha = number_arg(node, "alpha").value_or(1);
  if (alpha != 1) self = write.call(PointwiseOp::mul, {self, write.number(alpha)});
  return write.call(PointwiseOp::sub, {write.argument(node, "other"), self});
}

/// Whether a remainder is none of the divisor's sign, so that one divisor is missing.
Operand falls_short(PointwiseWriter& write, Operand rest, Operand divisor) {
  const Operand signs = write.call(PointwiseOp::mul, {write.call(PointwiseOp::sign, {rest}), divisor});
  return write.call(PointwiseOp::lt, {signs, write.number(0)});
}

/// LibTorch's: of floats the dividend less its remainder, a multiple of the divisor, by that; the floor of
/// the rounded quotient may be one more. Quotients of integers that f32 holds are not rounded to the next
/// one.
Operand floor_divide(PointwiseWriter& write, const Node& node) {
  const std::optional<graph::TensorMeta>& meta = node.output()->meta;
  if (meta && !at::isFloatingType(meta->dtype))
    return write.call(PointwiseOp::floor, {binary<PointwiseOp::div>(write, node)});
  const Operand a = write.argument(node, "self"), b = write.argument(node, "other");
  const Operand rest = write.call(PointwiseOp::fmod, {a, b});
  const Operand multiple = write.call(PointwiseOp::sub, {a, rest});
  const Operand whole = write.call(PointwiseOp::round, {write.call(PointwiseOp::div, {multiple, b})});
  const Operand less = write.call(PointwiseOp::sub, {whole, write.number(1)});
  const Operand floor = write.call(PointwiseOp::where, {falls_short(write, rest, b), less, whole});
  if (b.kind == Operand::Kind::number && b.number != 0) return floor;
  const Operand none = write.call(PointwiseOp::eq, {b, write.number(0)});
  return write.call(PointwiseOp::where, {none, write.call(PointwiseOp::div, {a, b}), floor});
}

Operand divide(PointwiseWriter& write, const Node& node) {
  if (!has_arg(node, "rounding_mode") || node.arg("rounding_mode").is_none())
    return binary<PointwiseOp::div>(write, node);
  if (node.arg("rounding_mode").literal.toStringRef() == "floor") return floor_divide(write, node);
  return write.call(PointwiseOp::trunc, {binary<PointwiseOp::div>(write, node)});
}

/// True for integers that a product went into: f32, in which steps compute, has no ones beyond 2^24.
bool may_be_large(const graph::Argument& argument) {
  if (!argument.is_value() || !argument.value->meta) return false;
  const at::ScalarType type = argument.value->meta->dtype;
  // Those of fewer bits wrap around.
  if (!at::isIntegralType(type, /*includeBool=*/false) || c10::elementSize(type) < 4) return false;
  const Node& node = *argument.value->producer;
  if (node.kind() != Node::Kind::call || graph::from_attributes(node)) return false;
  return node.is("aten::mul") || node.is("aten::pow") || std::ranges::any_of(node.args, may_be_large);
}

void expect_small(const Node& node) {
  if (may_be_large(node.args.at(0))) {
    unsupported(node, "expected integers below 2^24, got a product: its last digits would be lost");
  }
}

/// The bits that whole x has in common with a number that is not negative: of each run of ones those below its end
/// without those below its begin.
Operand common_bits(PointwiseWriter& write, const Node& node, Operand x, int64_t mask) {
  Operand sum = write.number(0);
  int runs = 0;
  for (int begin = 0; begin < 24 && mask >> begin != 0; ++begin) {
    if (((mask >> begin) & 1) == 0) continue;
    int end = begin;
    while (((mask >> end) & 1) != 0) ++end;
    Operand run = low_bits(write, x, end);
    if (begin > 0) run = write.call(PointwiseOp::sub, {run, low_bits(write, x, begin)});
    sum = runs++ == 0 ? run : write.call(PointwiseOp::add, {sum, run});
    begin = end;
  }
  if (mask >= int64_t{1} << 24 || runs > 2)
    unsupported(node, "expected a number below 2^24 with two runs of ones");
  return sum;
}

/// Of truth values, and of whole numbers of at most 2^24, which f32 holds, with a number. With c the bits
/// that both have, x | y = x + (y - c) and x ^ y = (x - c) + (y - c), whose parts are no larger than the
/// operands; with c the bits that x has in common with the complement of y below 0, x & y = x - c, x | y = y
/// + c and x ^ y = (y + c) - (x - c).
template <PointwiseOp op>
Operand bits(PointwiseWriter& write, const Node& node) {
  if (is_truth(node)) return binary<op>(write, node);
  const std::optional<int64_t> given = graph::integer(node.arg("other"));
  if (!given || !node.output()->meta) unsupported(node, "expected truth values, or integers with a number");
  expect_small(node);
  const Operand x = write.argument(node, "self"), y = write.argument(node, "other");
  const auto number = static_cast<int64_t>(y.number);
  const at::ScalarType type = node.output()->meta->dtype;
  const bool has_sign = c10::isSignedType(type);
  const int64_t ones = has_sign ? -1 : (int64_t{1} << 8 * c10::elementSize(type)) - 1;
  const bool turned = number < 0 || (!has_sign && *given < 0);  // the complement may have fewer runs
  const Operand common = common_bits(write, node, x, turned ? ones - number : number);
  const auto x_alone = [&] { return write.call(PointwiseOp::sub, {x, common}); };
  if (op == PointwiseOp::logical_and) return turned ? x_alone() : common;
  if (turned) {
    const Operand either = write.call(PointwiseOp::add, {y, common});
    return op == PointwiseOp::logical_or ? either : write.call(PointwiseOp::sub, {either, x_alone()});
  }
  const Operand y_alone = write.call(PointwiseOp::sub, {y, common});
  return write.call(PointwiseOp::add, {op == PointwiseOp::logical_or ? x : x_alone(), y_alone});
}

/// Of integers -x - 1.
Operand bits_not(PointwiseWriter& write, const Node& node) {
  if (is_truth(node)) return unary<PointwiseOp::logical_not>(write, node);
  expect_small(node);
  return write.call(PointwiseOp::sub, {write.number(-1), write.argument(node, "self")});
}

/// PyTorch's remainder, which has the sign of b: exact, as the one with the sign of a is.
Operand remainder(PointwiseWriter& write, const Node& node) {
  expect_small(node);
  const Operand a = write.argument(node, "self"), b = write.argument(node, "other");
  const Operand rest = write.call(PointwiseOp::fmod, {a, b});
  const Operand more = write.call(PointwiseOp::add, {rest, b});
  return write.call(PointwiseOp::where, {falls_short(write, rest, b), more, rest});
}

Operand power(PointwiseWriter& write, const Node& node) {
  const Operand base = write.argument(node, "self"), exponent = write.argument(node, "exponent");
  if (exponent.kind != Operand::Kind::number) return write.call(PointwiseOp::pow, {base, exponent});
  if (exponent.number == 1) return write.call(PointwiseOp::add, {base, write.number(0)});
  if (exponent.number == 2) return write.call(PointwiseOp::square, {base});
  if (exponent.number == 3)
    return write.call(PointwiseOp::mul, {write.call(PointwiseOp::square, {base}), base});
  if (exponent.number == 0.5F) return write.call(PointwiseOp::sqrt, {base});
  if (exponent.number == -0.5F) return write.call(PointwiseOp::rsqrt, {base});
  if (exponent.number == -1) return write.call(PointwiseOp::reciprocal, {base});
  return write.call(PointwiseOp::pow, {base, exponent});
}

Operand bounded(PointwiseWriter& write, Operand x, double low, double high) {
  if (low > -kInfinity) x = write.call(PointwiseOp::max, {x, write.number(low)});
  if (high < kInfinity) x = write.call(PointwiseOp::min, {x, write.number(high)});
  return x;
}

Operand clamp(PointwiseWriter& write, const Node& node) {
  Operand x = write.argument(node, "self");
  if (has_arg(node, "min") && !node.arg("min").is_none())
    x = write.call(PointwiseOp::max, {x, write.argument(node, "min")});
  if (has_arg(node, "max") && !node.arg("max").is_none())
    x = write.call(PointwiseOp::min, {x, write.argument(node, "max")});
  return x;
}

Operand hardtanh(PointwiseWriter& write, const Node& node) {
  return bounded(write, write.argument(node, "self"), number_arg(node, "min_val").value_or(-1),
                 number_arg(node, "max_val").value_or(1));
}

Operand relu6(PointwiseWriter& write, const Node& node) {
  return bounded(write, write.argument(node, "self"), 0, 6);
}

/// clamp(x + 3, 0, 6), and over 6 as PyTorch rounds it.
Operand hardsigmoid(PointwiseWriter& write, const Node& node) {
  const Operand gate =
      bounded(write, write.call(PointwiseOp::add, {write.argument(node, "self"), write.number(3)}), 0, 6);
  return write.call(PointwiseOp::div, {gate, write.number(6)});
}

Operand hardswish(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self");
  const Operand gate = bounded(write, write.call(PointwiseOp::add, {x, write.number(3)}), 0, 6);
  return write.call(PointwiseOp::div, {write.call(PointwiseOp::mul, {gate, x}), write.number(6)});
}

Operand gelu(PointwiseWriter& write, const Node& node) {
  const bool by_tanh = node.arg("approximate").literal.toStringRef() == "tanh";
  return write.call(by_tanh ? PointwiseOp::gelu_tanh : PointwiseOp::gelu, {write.argument(node, "self")});
}

Operand leaky_relu(PointwiseWriter& write, const Node& node) {
  return write.call(
      PointwiseOp::scaled_below,
      {write.argument(node, "self"), write.number(number_arg(node, "negative_slope").value_or(0.01))});
}

/// A slope for each channel, which is dimension 1.
Operand prelu(PointwiseWriter& write, const Node& node) {
  const graph::Value* x = value_arg(node, "self");
  std::vector<int64_t> shape(shape_of(node, *x).size(), 1);
  const graph::Value* weight = value_arg(node, "weight");
  const std::vector<graph::SizeExpr>& sizes = weight->meta->sizes;
  if (shape.size() > 1 && sizes.size() == 1) shape[1] = sizes[0].offset;
  return write.call(PointwiseOp::scaled_below,
                    {write.argument(node, "self"), write.reshaped(node, "weight", shape)});
}

/// scale * (x > 0 ? x : alpha * (e^(input_scale x) - 1)).
Operand exponential_unit(PointwiseWriter& write, Operand x, double alpha, double scale, double input_scale) {
  Operand inner = input_scale == 1 ? x : write.call(PointwiseOp::mul, {x, write.number(input_scale)});
  Operand below = write.call(PointwiseOp::expm1, {inner});
  if (alpha != 1) below = write.call(PointwiseOp::mul, {below, write.number(alpha)});
  const Operand positive = write.call(PointwiseOp::gt, {x, write.number(0)});
  const Operand y = write.call(PointwiseOp::where, {positive, x, below});
  return scale == 1 ? y : write.call(PointwiseOp::mul, {y, write.number(scale)});
}

Operand elu(PointwiseWriter& write, const Node& node) {
  return exponential_unit(write, write.argument(node, "self"), number_arg(node, "alpha").value_or(1),
                          number_arg(node, "scale").value_or(1), number_arg(node, "input_scale").value_or(1));
}

/// The constants of Klambauer et al. 2017, "Self-Normalizing Neural Networks".
Operand selu(PointwiseWriter& write, const Node& node) {
  return exponential_unit(write, write.argument(node, "self"), 1.6732632423543772, 1.0507009873554805, 1);
}

Operand celu(PointwiseWriter& write, const Node& node) {
  const double alpha = number_arg(node, "alpha").value_or(1);
  return exponential_unit(write, write.argument(node, "self"), alpha, 1, 1 / alpha);
}

/// log(1 + e^(beta x)) / beta; x itself where beta x is above the threshold.
Operand softplus(PointwiseWriter& write, const Node& node) {
  const double beta = number_arg(node, "beta").value_or(1),
               threshold = number_arg(node, "threshold").value_or(20);
  const Operand x = write.argument(node, "self");
  if (beta == 1 && threshold == 20) return write.call(PointwiseOp::softplus, {x});
  const Operand scaled = write.call(PointwiseOp::mul, {x, write.number(beta)});
  const Operand curve = write.call(
      PointwiseOp::div,
      {write.call(PointwiseOp::log1p, {write.call(PointwiseOp::exp, {scaled})}), write.number(beta)});
  return write.call(PointwiseOp::where,
                    {write.call(PointwiseOp::gt, {scaled, write.number(threshold)}), x, curve});
}

/// -softplus(-x), whose softplus has no threshold that matters to floats.
Operand log_sigmoid(PointwiseWriter& write, const Node& node) {
  const Operand negative = write.call(PointwiseOp::neg, {write.argument(node, "self")});
  return write.call(PointwiseOp::neg, {write.call(PointwiseOp::softplus, {negative})});
}

/// x / (1 + |x|).
Operand softsign(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self");
  return write.call(PointwiseOp::div,
                    {x, write.call(PointwiseOp::add, {write.call(PointwiseOp::abs, {x}), write.number(1)})});
}

Operand hardshrink(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self");
  const Operand large = write.call(PointwiseOp::gt, {write.call(PointwiseOp::abs, {x}),
                                                     write.number(number_arg(node, "lambd").value_or(0.5))});
  return write.call(PointwiseOp::where, {large, x, write.number(0)});
}

/// sign(x) max(|x| - lambd, 0).
Operand softshrink(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self");
  const Operand rest = write.call(PointwiseOp::sub, {write.call(PointwiseOp::abs, {x}),
                                                     write.number(number_arg(node, "lambd").value_or(0.5))});
  return write.call(PointwiseOp::mul, {write.call(PointwiseOp::sign, {x}),
                                       write.call(PointwiseOp::max, {rest, write.number(0)})});
}

Operand threshold(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self");
  const Operand above = write.call(PointwiseOp::gt, {x, write.argument(node, "threshold")});
  return write.call(PointwiseOp::where, {above, x, write.argument(node, "value")});
}

Operand where(PointwiseWriter& write, const Node& node) {
  return write.call(PointwiseOp::where, {write.argument(node, "condition"), write.argument(node, "self"),
                                         write.argument(node, "other")});
}

Operand masked_fill(PointwiseWriter& write, const Node& node) {
  return write.call(PointwiseOp::where, {write.argument(node, "mask"), write.argument(node, "value"),
                                         write.argument(node, "self")});
}

/// self + value * tensor1 op tensor2.
template <PointwiseOp op>
Operand add_combined(PointwiseWriter& write, const Node& node) {
  Operand term = write.call(op, {write.argument(node, "tensor1"), write.argument(node, "tensor2")});
  const double value = number_arg(node, "value").value_or(1);
  if (value != 1) term = write.call(PointwiseOp::mul, {term, write.number(value)});
  return write.call(PointwiseOp::add, {write.argument(node, "self"), term});
}

/// self + weight (end - self).
Operand lerp(PointwiseWriter& write, const Node& node) {
  const Operand self = write.argument(node, "self");
  const Operand way = write.call(PointwiseOp::sub, {write.argument(node, "end"), self});
  return write.call(PointwiseOp::add,
                    {self, write.call(PointwiseOp::mul, {write.argument(node, "weight"), way})});
}

template <int base>
Operand log_to(PointwiseWriter& write, const Node& node) {
  return write.call(PointwiseOp::mul, {write.call(PointwiseOp::log, {write.argument(node, "self")}),
                                       write.number(1 / std::log(double{base}))});
}

/// Half to even; to whole numbers only.
Operand round(PointwiseWriter& write, const Node& node) {
  if (has_arg(node, "decimals") && int_arg(node, "decimals") != 0)
    unsupported(node, "expected to round to whole numbers");
  return write.call(PointwiseOp::round, {write.argument(node, "self")});
}

/// x != x.
Operand isnan(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self");
  return write.call(PointwiseOp::ne, {x, x});
}

/// Beyond the largest number.
Operand isinf(PointwiseWriter& write, const Node& node) {
  return write.call(PointwiseOp::gt, {write.call(PointwiseOp::abs, {write.argument(node, "self")}),
                                      write.number(std::numeric_limits<float>::max())});
}

/// Casts: what is whole is cut, truth is "not 0"; floats stay, but those of 8 bits, whose rounding is what
/// they are for.
Operand cast(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self");
  const std::optional<graph::TensorMeta>& from = value_arg(node, "self")->meta;
  const std::optional<graph::TensorMeta>& to = node.output()->meta;
  if (!to || !from) unsupported(node, "expected a cast between known types");
  if (c10::isFloat8Type(to->dtype) || c10::isFloat8Type(from->dtype))
    unsupported(node, "expected floats of 16 bits or more, got some of 8, which steps do not round to");
  if (to->dtype == at::kBool && from->dtype != at::kBool)
    return write.call(PointwiseOp::ne, {x, write.number(0)});
  if (at::isIntegralType(to->dtype, false) && c10::elementSize(to->dtype) <= 2) expect_small(node);
  if (at::isIntegralType(to->dtype, false) && at::isFloatingType(from->dtype))
    return write.call(PointwiseOp::trunc, {x});
  return write.call(PointwiseOp::add, {x, write.number(0)});
}

/// atan2(x, sqrt((1 - x) (1 + x))), and with both the other way round acos.
template <bool cosine>
Operand arc(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self"), one = write.number(1);
  const Operand product = write.call(
      PointwiseOp::mul, {write.call(PointwiseOp::sub, {one, x}), write.call(PointwiseOp::add, {x, one})});
  const Operand other = write.call(PointwiseOp::sqrt, {product});
  return cosine ? write.call(PointwiseOp::atan2, {other, x}) : write.call(PointwiseOp::atan2, {x, other});
}

/// (e^x - 1 - (e^-x - 1)) / 2: no digits are lost near 0.
Operand sinh(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self");
  const Operand up = write.call(PointwiseOp::expm1, {x}),
                down = write.call(PointwiseOp::expm1, {write.call(PointwiseOp::neg, {x})});
  return write.call(PointwiseOp::mul, {write.call(PointwiseOp::sub, {up, down}), write.number(0.5)});
}

Operand cosh(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self");
  const Operand up = write.call(PointwiseOp::exp, {x}),
                down = write.call(PointwiseOp::exp, {write.call(PointwiseOp::neg, {x})});
  return write.call(PointwiseOp::mul, {write.call(PointwiseOp::add, {up, down}), write.number(0.5)});
}

/// sign(x) log(1 + a + a / (1 / a + sqrt(1 / a^2 + 1))) with a = |x|: nothing overflows.
Operand asinh(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self"), a = write.call(PointwiseOp::abs, {x});
  const Operand inverse = write.call(PointwiseOp::reciprocal, {a});
  const Operand root = write.call(
      PointwiseOp::sqrt,
      {write.call(PointwiseOp::add, {write.call(PointwiseOp::square, {inverse}), write.number(1)})});
  const Operand rest = write.call(PointwiseOp::div, {a, write.call(PointwiseOp::add, {inverse, root})});
  const Operand curve = write.call(PointwiseOp::log1p, {write.call(PointwiseOp::add, {a, rest})});
  return write.call(PointwiseOp::mul, {write.call(PointwiseOp::sign, {x}), curve});
}

/// log(1 + t + sqrt(t) sqrt(t + 2)) with t = x - 1.
Operand acosh(PointwiseWriter& write, const Node& node) {
  const Operand t = write.call(PointwiseOp::sub, {write.argument(node, "self"), write.number(1)});
  const Operand roots =
      write.call(PointwiseOp::mul,
                 {write.call(PointwiseOp::sqrt, {t}),
                  write.call(PointwiseOp::sqrt, {write.call(PointwiseOp::add, {t, write.number(2)})})});
  return write.call(PointwiseOp::log1p, {write.call(PointwiseOp::add, {t, roots})});
}

/// sign(x) log(1 + 2 a / (1 - a)) / 2 with a = |x|.
Operand atanh(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self"), a = write.call(PointwiseOp::abs, {x});
  const Operand ratio = write.call(PointwiseOp::div, {write.call(PointwiseOp::add, {a, a}),
                                                      write.call(PointwiseOp::sub, {write.number(1), a})});
  const Operand half =
      write.call(PointwiseOp::mul, {write.call(PointwiseOp::log1p, {ratio}), write.number(0.5)});
  return write.call(PointwiseOp::mul, {write.call(PointwiseOp::sign, {x}), half});
}

/// A number in every place: what is filled is not read. Whole numbers are cut off, as LibTorch converts them.
Operand fill(PointwiseWriter& write, const Node& node) {
  const char* name = node.is("aten::fill") ? "value" : "fill_value";
  const std::optional<double> number = graph::number(node.arg(name));
  const auto& meta = node.output()->meta;
  if (number && meta && c10::isIntegralType(meta->dtype, /*includeBool=*/false))
    return write.number(std::trunc(*number));
  return write.argument(node, name);
}

template <int value>
Operand filled_with(PointwiseWriter& write, const Node&) {
  return write.number(value);
}

constexpr PointwiseLowering kTable[] = {
    {"aten::add", sum<PointwiseOp::add>, 2, 1},
    {"aten::sub", sum<PointwiseOp::sub>, 2, 1},
    {"aten::rsub", rsub, 2, 1},
    {"aten::mul", binary<PointwiseOp::mul>},
    {"aten::div", divide, 2},
    {"aten::true_divide", binary<PointwiseOp::div>},
    {"aten::floor_divide", floor_divide, 12, 3},
    {"aten::remainder", remainder, 6, 1},
    {"aten::fmod", binary<PointwiseOp::fmod>},
    {"aten::pow", power, 2, 1},
    {"aten::maximum", binary<PointwiseOp::max>},
    {"aten::minimum", binary<PointwiseOp::min>},
    {"aten::atan2", binary<PointwiseOp::atan2>},
    {"aten::eq", binary<PointwiseOp::eq>},
    {"aten::ne", binary<PointwiseOp::ne>},
    {"aten::lt", binary<PointwiseOp::lt>},
    {"aten::le", binary<PointwiseOp::le>},
    {"aten::gt", binary<PointwiseOp::gt>},
    {"aten::ge", binary<PointwiseOp::ge>},
    {"aten::logical_and", binary<PointwiseOp::logical_and>},
    {"aten::logical_or", binary<PointwiseOp::logical_or>},
    {"aten::logical_xor", binary<PointwiseOp::logical_xor>},
    {"aten::logical_not", unary<PointwiseOp::logical_not>},
    {"aten::bitwise_and", bits<PointwiseOp::logical_and>, 20, 8},
    {"aten::bitwise_or", bits<PointwiseOp::logical_or>, 21, 8},
    {"aten::bitwise_xor", bits<PointwiseOp::logical_xor>, 22, 8},
    {"aten::bitwise_not", bits_not, 1, 1},
    {"aten::__and__", bits<PointwiseOp::logical_and>, 20, 8},
    {"aten::__or__", bits<PointwiseOp::logical_or>, 21, 8},
    {"aten::__xor__", bits<PointwiseOp::logical_xor>, 22, 8},
    {"aten::where", where},
    {"aten::masked_fill", masked_fill},
    {"aten::addcmul", add_combined<PointwiseOp::mul>, 3, 1},
    {"aten::addcdiv", add_combined<PointwiseOp::div>, 3, 1},
    {"aten::lerp", lerp, 3},
    {"aten::neg", unary<PointwiseOp::neg>},
    {"aten::abs", unary<PointwiseOp::abs>},
    {"aten::sign", unary<PointwiseOp::sign>},
    {"aten::square", unary<PointwiseOp::square>},
    {"aten::reciprocal", unary<PointwiseOp::reciprocal>},
    {"aten::sqrt", unary<PointwiseOp::sqrt>},
    {"aten::rsqrt", unary<PointwiseOp::rsqrt>},
    {"aten::exp", unary<PointwiseOp::exp>},
    {"aten::expm1", unary<PointwiseOp::expm1>},
    {"aten::log", unary<PointwiseOp::log>},
    {"aten::log1p", unary<PointwiseOp::log1p>},
    {"aten::log2", log_to<2>, 2, 1},
    {"aten::log10", log_to<10>, 2, 1},
    {"aten::sin", unary<PointwiseOp::sin>},
    {"aten::cos", unary<PointwiseOp::cos>},
    {"aten::tan", unary<PointwiseOp::tan>},
    {"aten::atan", unary<PointwiseOp::atan>},
    {"aten::asin", arc<false>, 5, 2},
    {"aten::acos", arc<true>, 5, 2},
    {"aten::sinh", sinh, 5, 1},
    {"aten::cosh", cosh, 5, 1},
    {"aten::asinh", asinh, 11, 1},
    {"aten::acosh", acosh, 8, 2},
    {"aten::atanh", atanh, 8, 2},
    {"aten::floor", unary<PointwiseOp::floor>},
    {"aten::ceil", unary<PointwiseOp::ceil>},
    {"aten::round", round},
    {"aten::trunc", unary<PointwiseOp::trunc>},
    {"aten::isnan", isnan},
    {"aten::isinf", isinf, 2, 1},
    {"aten::tanh", unary<PointwiseOp::tanh>},
    {"aten::sigmoid", unary<PointwiseOp::sigmoid>},
    {"aten::erf", unary<PointwiseOp::erf>},
    {"aten::erfc", unary<PointwiseOp::erfc>},
    {"aten::logit", logit, 5, 4},
    {"aten::xlogy", xlogy, 6, 2},
    {"aten::special_xlogy", xlogy, 6, 2},
    {"aten::special_xlog1py", xlog1py, 6, 2},
    {"aten::sinc", sinc, 5, 3},
    {"aten::nan_to_num", nan_to_num, 6, 5},
    {"aten::logaddexp", logaddexp, 9, 1},
    {"aten::frac", frac, 2},
    {"aten::exp2", exp2, 1, 1},
    {"aten::deg2rad", deg2rad, 1, 1},
    {"aten::rad2deg", rad2deg, 1, 1},
    {"aten::relu", unary<PointwiseOp::relu>},
    {"aten::relu6", relu6, 2, 2},
    {"aten::hardtanh", hardtanh, 2, 2},
    {"aten::clamp", clamp, 2},
    {"aten::clip", clamp, 2},
    {"aten::clamp_min", clamp},
    {"aten::clamp_max", clamp},
    {"aten::gelu", gelu},
    {"aten::silu", unary<PointwiseOp::silu>},
    {"aten::mish", unary<PointwiseOp::mish>},
    {"aten::hardsigmoid", hardsigmoid, 4, 4},
    {"aten::hardswish", hardswish, 5, 4},
    {"aten::leaky_relu", leaky_relu, 1, 1},
    {"aten::prelu", prelu},
    {"aten::elu", elu, 6, 4},
    {"aten::selu", selu, 6, 4},
    {"aten::celu", celu, 6, 4},
    {"aten::softplus", softplus, 6, 3},
    {"aten::log_sigmoid", log_sigmoid, 3},
    {"aten::softsign", softsign, 3, 1},
    {"aten::hardshrink", hardshrink, 3, 2},
    {"aten::softshrink", softshrink, 5, 2},
    {"aten::threshold", threshold, 2},
    {"aten::fill", fill},
    {"aten::full_like", fill},
    {"aten::ones_like", filled_with<1>, 1, 1},
    {"aten::zeros_like", filled_with<0>, 1, 1},
    {"aten::to", cast, 1, 1},
    {"aten::type_as", cast, 1, 1},
    {"aten::_to_copy", cast, 1, 1},
};

}  // namespace

const PointwiseLowering* find_pointwise(const Node& node) {
  if (node.kind() != Node::Kind::call || node.outputs().size() != 1) return nullptr;
  const auto* row = std::ranges::find(kTable, node.op(), &PointwiseLowering::op);
  return row == std::end(kTable) ? nullptr : row;
}

}  // namespace ulp::lowering
