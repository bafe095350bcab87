// Elementwise functions in several calls.
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "ulp/exchange/arguments.h"
#include "ulp/exchange/spelled/spelled.h"

namespace ulp::exchange::spelled {

namespace {

using V = Formula::V;

void square(Formula& f) {
  V x = f.x();
  f.result(f.mul(x, x));
}

// Activations.

/// log(1 + exp(x)) without overflow.
V soft_plus(Formula& f, V x) {
  V far = f.map("aten::neg", f.abs(x));
  return f.add(f.map("aten::relu", x), f.log1p(f.exp(far)));
}

void softplus(Formula& f) {
  const double beta = number_arg(f.node(), "beta"), threshold = number_arg(f.node(), "threshold");
  V x = f.x(), scaled = beta == 1 ? x : f.mul(x, beta), soft = soft_plus(f, scaled);
  if (beta != 1) soft = f.div(soft, beta);
  f.result(f.where(f.compare("aten::gt", scaled, threshold), x, soft));
}

void log_sigmoid(Formula& f) {
  f.result(f.map("aten::neg", soft_plus(f, f.map("aten::neg", f.x()))));
}

void mish(Formula& f) {
  V x = f.x();
  f.result(f.mul(x, f.map("aten::tanh", soft_plus(f, x))));
}

/// scale x above 0, below `depth` (exp(x `input`) - 1).
V elu_of(Formula& f, double scale, double depth, double input) {
  V x = f.x(), above = scale == 1 ? x : f.mul(x, scale);
  V below = f.map("aten::elu", input == 1 ? x : f.mul(x, input));
  return f.where(f.compare("aten::gt", x, 0.0), above, f.mul(below, depth));
}

void elu(Formula& f) {
  const double alpha = number_arg(f.node(), "alpha"), scale = number_arg(f.node(), "scale"),
               input = number_arg(f.node(), "input_scale");
  if (alpha != 1 || scale != 1 || input != 1) f.result(elu_of(f, scale, alpha * scale, input));
}

void celu(Formula& f) {
  const double alpha = number_arg(f.node(), "alpha");
  f.result(elu_of(f, 1, alpha, 1 / alpha));
}

/// LibTorch's constants.
void selu(Formula& f) {
  constexpr double kAlpha = 1.6732632423543772848170429916717, kScale = 1.0507009873554804934193349852946;
  f.result(elu_of(f, kScale, kAlpha * kScale, 1));
}

/// One half of a dimension times the sigmoid of the other.
void glu(Formula& f) {
  V x = f.x();
  const int64_t dim = dim_arg(f.node(), "dim", std::ssize(x->meta->sizes)),
                half = fixed_size(f.node(), *x, dim) / 2;
  f.result(f.mul(f.slice(x, dim, 0, half), f.map("aten::sigmoid", f.slice(x, dim, half, half))));
}

void hardshrink(Formula& f) {
  V x = f.x();
  f.result(f.where(f.compare("aten::le", f.abs(x), number_arg(f.node(), "lambd")), 0.0, x));
}

void softshrink(Formula& f) {
  V x = f.x();
  const double limit = number_arg(f.node(), "lambd");
  V below = f.where(f.compare("aten::lt", x, -limit), f.add(x, limit), f.mul(x, 0.0));
  f.result(f.where(f.compare("aten::gt", x, limit), f.add(x, -limit), below));
}

void threshold(Formula& f) {
  if (!f.floats()) return;
  V x = f.x();
  f.result(
      f.where(f.compare("aten::le", x, number_arg(f.node(), "threshold")), number_arg(f.node(), "value"), x));
}

/// One slope for all, or one a channel.
void prelu(Formula& f) {
  V x = f.x();
  at::Tensor slope = f.spell().graph().attribute_tensor(value_arg(f.node(), "weight"));
  if (!slope.defined()) return;
  std::vector<int64_t> sizes(x->meta->sizes.size(), 1);
  if (sizes.size() > 1) sizes[1] = slope.numel();
  V by = f.constant(slope.detach().reshape(sizes), "slope");
  f.result(f.where(f.compare("aten::gt", x, 0.0), x, f.mul(x, by)));
}

// Logarithms and powers.

void log1p(Formula& f) {
  f.result(f.log1p(f.x()));
}
void expm1(Formula& f) {
  f.result(f.expm1(f.x()));
}
void log_of_base(Formula& f) {
  f.result(f.div(f.log(f.x()), f.node().is("aten::log2") ? std::numbers::ln2 : std::numbers::ln10));
}
void exp2(Formula& f) {
  V x = f.x();
  f.result(f.spell().call("aten::pow.Scalar", {c10::IValue(2.0), x}, f.type(), x->meta->sizes));
}

/// log(exp(a) + exp(b)); of two infinities of one sign it is that.
void logaddexp(Formula& f) {
  V a = f.x(), b = f.tensor("other");
  V more = f.log1p(f.exp(f.map("aten::neg", f.abs(f.sub(a, b)))));
  V same = f.compare("aten::eq", a, b);
  f.result(f.where(same, f.add(a, std::numbers::ln2), f.add(f.maximum(a, b), more)));
}

/// An eps below 0 is none to LibTorch; from 1/2 on the bounds would be the wrong way round.
void logit(Formula& f) {
  V x = f.x();
  const double eps = optional_number(f.node(), "eps").value_or(-1);
  if (eps > 0.5) return;
  if (eps >= 0) x = f.spell().map("aten::clamp", {x, c10::IValue(eps), c10::IValue(1 - eps)});
  f.result(f.log(f.div(x, f.from(1, x))));
}

/// c log(y).
void xlogy_of_number(Formula& f, double c, V y) {
  f.result(c == 0 ? f.where(f.compare("aten::ne", y, y), y, 0.0) : f.mul(f.log(y), c));
}

/// x log(c); the logarithm is one of the result's type.
void xlogy_by_number(Formula& f, V x, double c) {
  if (std::isnan(c)) return f.result(f.mul(x, c));
  const double log = f.type() == at::kDouble ? std::log(c) : std::log(static_cast<float>(c));
  f.result(f.where(f.compare("aten::eq", x, 0.0), 0.0, f.mul(x, log)));
}

/// x log(y); 0 where x is 0 and y a number.
void xlogy(Formula& f) {
  if (!f.is_tensor("self")) return xlogy_of_number(f, number_arg(f.node(), "self"), f.tensor("other"));
  if (!f.is_tensor("other")) return xlogy_by_number(f, f.x(), number_arg(f.node(), "other"));
  V x = f.x(), y = f.tensor("other");
  V product = f.where(f.compare("aten::eq", x, 0.0), 0.0, f.mul(x, f.log(y)));
  f.result(f.where(f.compare("aten::ne", y, y), f.add(y, f.mul(x, 0.0)), product));
}

// The error function, by GELU, x / 2 (1 + erf(x / sqrt 2)), and near 0 by its series.

V erf_of(Formula& f, V x) {
  constexpr double kNear = 0.5;
  V wide = f.mul(x, std::numbers::sqrt2);
  V ratio = f.div(f.map("aten::gelu", wide), wide);
  V far = f.add(f.mul(ratio, 2), -1);
  // 2 / sqrt(pi) x sum of (-x^2)^n / (n! (2n + 1)): the first term that is left out is 6e-10 of x.
  constexpr int kTerms = 7;
  const auto term = [](int n) { return std::pow(-1, n) / (std::tgamma(n + 1) * (2 * n + 1)); };
  V square = f.mul(x, x), sum = f.mul(square, term(kTerms - 1));
  for (int n = kTerms - 2; n > 0; --n) sum = f.mul(f.add(sum, term(n)), square);
  sum = f.add(sum, 1);
  V near = f.mul(f.mul(x, sum), 2 * std::numbers::inv_sqrtpi);
  V bounded = f.where(f.compare("aten::gt", f.abs(x), 10), f.map("aten::sign", x), far);  // infinity, too
  return f.where(f.compare("aten::lt", f.abs(x), kNear), near, bounded);
}

void erf(Formula& f) {
  f.result(erf_of(f, f.x()));
}

/// 1 - erf(x), whose digits stay for large x: there t exp(-x^2 + p(t)) with t = 1 / (1 + x / 2), Numerical
/// Recipes' erfcc, within 1.2e-7 of each number. x^2 is h^2 + (x - h)(x + h) with an h whose square is exact.
void erfc(Formula& f) {
  constexpr double kNear = 0.5, kVanishes = 11, kSixteenths = 16;
  V x = f.x(), z = f.abs(x), t = f.spell().map("aten::reciprocal", {f.add(f.mul(z, 0.5), 1)});
  V sum = f.mul(t, 0.17087277);
  for (const double term :
       {-0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368})
    sum = f.mul(f.add(sum, term), t);
  V ratio = f.mul(t, f.exp(f.add(sum, -1.26551223)));
  V h = f.mul(f.map("aten::floor", f.mul(z, kSixteenths)), 1 / kSixteenths);
  V bell = f.mul(f.exp(f.map("aten::neg", f.mul(h, h))), f.exp(f.mul(f.sub(h, z), f.add(h, z))));
  V far = f.where(f.compare("aten::gt", z, kVanishes), 0.0, f.mul(ratio, bell));  // infinity, too
  V both = f.where(f.compare("aten::lt", x, 0.0), f.from(2, far), far);
  f.result(f.where(f.compare("aten::lt", z, kNear), f.from(1, erf_of(f, x)), both));
}

// Circular and hyperbolic functions.

void tan(Formula& f) {
  V x = f.x();
  f.result(f.div(f.map("aten::sin", x), f.map("aten::cos", x)));
}

/// The other leg of a right triangle with a hypotenuse of 1.
V other_leg(Formula& f, V x) {
  return f.sqrt(f.mul(f.from(1, x), f.add(x, 1)));
}

/// By a tensor of 1 for each number, which the operator wants.
void atan(Formula& f) {
  V x = f.x();
  f.result(f.both("aten::atan2", x, f.where(f.compare("aten::eq", x, x), 1, x)));
}
void asin(Formula& f) {
  V x = f.x();
  f.result(f.both("aten::atan2", x, other_leg(f, x)));
}
void acos(Formula& f) {
  V x = f.x();
  f.result(f.both("aten::atan2", other_leg(f, x), x));
}

/// Below 0; -0, too, whose inverse is.
V is_negative(Formula& f, V x) {
  return f.both("aten::logical_or", f.compare("aten::lt", x, 0.0),
                f.compare("aten::lt", f.map("aten::reciprocal", x), 0.0));
}

/// The angle of the point (x, y): atan(y / x), and half a turn to the side of y where x is negative. The
/// quotient of two zeros is that of y by 1, the one of two infinities the product of their signs.
void atan2(Formula& f) {
  V y = f.x(), x = f.tensor("other");
  const auto both_are = [&](V a, V b, double value) {
    return f.both("aten::logical_and", f.compare("aten::eq", a, value), f.compare("aten::eq", b, value));
  };
  V quotient = f.where(both_are(y, x, 0), y, f.div(y, x));
  V signs = f.mul(f.map("aten::sign", y), f.map("aten::sign", x));
  V slope = f.where(both_are(f.abs(y), f.abs(x), std::numeric_limits<double>::infinity()), signs, quotient);
  V angle = f.map("aten::atan", slope);
  V half_turn = f.constant(torch::full({}, std::numbers::pi, f.type()), "pi");
  V turned = f.add(angle, f.where(is_negative(f, y), -std::numbers::pi, half_turn));
  f.result(f.where(is_negative(f, x), turned, angle));
}

V half_sum(Formula& f, V x, bool difference) {
  V up = f.exp(x), down = f.exp(f.map("aten::neg", x));
  return f.mul(difference ? f.sub(up, down) : f.add(up, down), 0.5);
}

/// Near 0 by u = exp(x) - 1: (u + u / (u + 1)) / 2.
void sinh(Formula& f) {
  V x = f.x(), u = f.expm1(x);
  V near = f.mul(f.add(u, f.div(u, f.add(u, 1))), 0.5);
  f.result(f.where(f.compare("aten::lt", f.abs(x), 1), near, half_sum(f, x, /*difference=*/true)));
}
void cosh(Formula& f) {
  f.result(half_sum(f, f.x(), /*difference=*/false));
}

constexpr double kSquareIsAll = 1e9;  // from here on x^2 + 1 is x^2, and could overflow

void asinh(Formula& f) {
  V x = f.x(), a = f.abs(x), square = f.mul(a, a);
  V near = f.log1p(f.add(a, f.div(square, f.add(f.sqrt(f.add(square, 1)), 1))));
  V far = f.add(f.log(a), std::numbers::ln2);
  f.result(f.mul(f.map("aten::sign", x), f.where(f.compare("aten::gt", a, kSquareIsAll), far, near)));
}

void acosh(Formula& f) {
  V x = f.x(), over = f.add(x, -1);
  V near = f.log1p(f.add(over, f.sqrt(f.mul(over, f.add(over, 2)))));
  V far = f.add(f.log(x), std::numbers::ln2);
  // Far below -1 both factors are negative, and the root is one of a positive number.
  V right = f.where(f.compare("aten::gt", x, kSquareIsAll), far, near);
  f.result(f.where(f.compare("aten::lt", x, 1), std::numeric_limits<double>::quiet_NaN(), right));
}

void atanh(Formula& f) {
  V x = f.x();
  f.result(f.mul(f.sub(f.log1p(x), f.log1p(f.map("aten::neg", x))), 0.5));
}

void sinc(Formula& f) {
  V x = f.x(), turned = f.mul(x, std::numbers::pi);
  f.result(f.where(f.compare("aten::eq", x, 0.0), 1, f.div(f.map("aten::sin", turned), turned)));
}

// What is no number.

void is_nan(Formula& f) {
  V x = f.spell().tensor("self");
  if (at::isFloatingType(x->meta->dtype)) f.result(f.compare("aten::ne", x, x));
}

void is_inf(Formula& f) {
  V x = f.spell().tensor("self");
  if (!at::isFloatingType(x->meta->dtype)) return;
  f.result(f.compare("aten::eq", f.abs(x), std::numeric_limits<double>::infinity()));
}

/// The largest number of a type.
double largest_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return std::numeric_limits<at::Half>::max();
    case at::kBFloat16:
      return std::numeric_limits<at::BFloat16>::max();
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

void nan_to_num(Formula& f) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  V x = f.x();
  if (!f.floats()) return f.result(f.map("aten::clone", x));
  const double largest = largest_of(f.type());
  const auto instead = [&](const char* name, double otherwise) {
    return optional_number(f.node(), name).value_or(otherwise);
  };
  V made = f.where(f.compare("aten::eq", x, kInfinity), instead("posinf", largest), x);
  made = f.where(f.compare("aten::eq", x, -kInfinity), instead("neginf", -largest), made);
  f.result(f.where(f.compare("aten::ne", x, x), instead("nan", 0.0), made));
}

// Sums of products.

/// self + value tensor1 tensor2, or by a quotient.
void addcmul(Formula& f) {
  V a = f.tensor("tensor1"), b = f.tensor("tensor2");
  V scaled = f.mul(a, number_arg(f.node(), "value"));
  f.result(f.add(f.x(), f.node().is("aten::addcmul") ? f.mul(scaled, b) : f.div(scaled, b)));
}

/// From the nearer end.
void lerp(Formula& f) {
  V x = f.x(), end = f.tensor("end"), span = f.sub(end, x);
  const double weight = number_arg(f.node(), "weight");
  if (std::abs(weight) < 0.5) return f.result(f.add(x, f.mul(span, weight)));
  f.result(f.sub(end, f.mul(span, 1 - weight)));
}

void degrees(Formula& f) {
  constexpr double kHalfTurn = 180;
  f.result(f.mul(f.x(),
                 f.node().is("aten::deg2rad") ? std::numbers::pi / kHalfTurn : kHalfTurn / std::numbers::pi));
}

/// Of truth values.
void bits(Formula& f) {
  if (f.type() != at::kBool) return;
  const auto is = [&](const char* a, const char* b) { return f.node().is(a) || f.node().is(b); };
  if (f.node().is("aten::bitwise_not")) return f.result(f.map("aten::logical_not", f.x()));
  if (!f.is_tensor("other")) return;
  V a = f.x(), b = f.tensor("other");
  if (is("aten::bitwise_and", "aten::__and__")) return f.result(f.both("aten::logical_and", a, b));
  if (is("aten::bitwise_or", "aten::__or__")) return f.result(f.both("aten::logical_or", a, b));
  f.result(f.compare("aten::ne", a, b));
}

}  // namespace

SpelledTable spelled_functions() {
  static constexpr SpelledRow kTable[] = {{"aten::square", square},
                                          {"aten::softplus", softplus},
                                          {"aten::log_sigmoid", log_sigmoid},
                                          {"aten::mish", mish},
                                          {"aten::elu", elu},
                                          {"aten::celu", celu},
                                          {"aten::selu", selu},
                                          {"aten::glu", glu},
                                          {"aten::hardshrink", hardshrink},
                                          {"aten::softshrink", softshrink},
                                          {"aten::threshold", threshold},
                                          {"aten::prelu", prelu},
                                          {"aten::_prelu_kernel", prelu},
                                          {"aten::log1p", log1p},
                                          {"aten::expm1", expm1},
                                          {"aten::log2", log_of_base},
                                          {"aten::log10", log_of_base},
                                          {"aten::exp2", exp2},
                                          {"aten::logaddexp", logaddexp},
                                          {"aten::logit", logit},
                                          {"aten::xlogy", xlogy},
                                          {"aten::special_xlogy", xlogy},
                                          {"aten::erf", erf},
                                          {"aten::erfc", erfc},
                                          {"aten::tan", tan},
                                          {"aten::atan", atan},
                                          {"aten::arctan", atan},
                                          {"aten::atan2", atan2},
                                          {"aten::arctan2", atan2},
                                          {"aten::asin", asin},
                                          {"aten::acos", acos},
                                          {"aten::sinh", sinh},
                                          {"aten::cosh", cosh},
                                          {"aten::asinh", asinh},
                                          {"aten::acosh", acosh},
                                          {"aten::atanh", atanh},
                                          {"aten::sinc", sinc},
                                          {"aten::isnan", is_nan},
                                          {"aten::isinf", is_inf},
                                          {"aten::nan_to_num", nan_to_num},
                                          {"aten::addcmul", addcmul},
                                          {"aten::addcdiv", addcmul},
                                          {"aten::lerp.Scalar", lerp},
                                          {"aten::deg2rad", degrees},
                                          {"aten::rad2deg", degrees},
                                          {"aten::bitwise_not", bits},
                                          {"aten::bitwise_and", bits},
                                          {"aten::bitwise_or", bits},
                                          {"aten::bitwise_xor", bits},
                                          {"aten::__and__", bits},
                                          {"aten::__or__", bits},
                                          {"aten::__xor__", bits},
                                          {"aten::logical_xor", bits}};
  return kTable;
}

}  // namespace ulp::exchange::spelled
