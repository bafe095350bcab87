#include "ulp/lower/pointwise_special.h"

#include <limits>
#include <numbers>

#include "ulp/lower/match.h"

namespace ulp::lowering {

using graph::Node;

/// log(x / (1 - x)), of x between eps and 1 - eps where there is an eps.
Operand logit(PointwiseWriter& write, const Node& node) {
  Operand x = write.argument(node, "self");
  const double eps = number_arg(node, "eps").value_or(-1);
  if (eps > 0.5) unsupported(node, "expected an eps of at most 0.5, got ", eps);
  if (eps >= 0) {
    x = write.call(PointwiseOp::max, {x, write.number(eps)});
    x = write.call(PointwiseOp::min, {x, write.number(1 - eps)});
  }
  const Operand odds = write.call(PointwiseOp::div, {x, write.call(PointwiseOp::sub, {write.number(1), x})});
  return write.call(PointwiseOp::log, {odds});
}

namespace {

/// x log(y), or log(1 + y): 0 where x is 0 and y a number.
Operand times_log(PointwiseWriter& write, const Node& node, PointwiseOp logarithm) {
  const Operand x = write.argument(node, "self"), y = write.argument(node, "other");
  const Operand product = write.call(PointwiseOp::mul, {x, write.call(logarithm, {y})});
  const Operand none = write.call(PointwiseOp::eq, {x, write.number(0)});
  const Operand made = write.call(PointwiseOp::where, {none, write.number(0), product});
  return write.call(PointwiseOp::where, {write.call(PointwiseOp::ne, {y, y}), y, made});
}

}  // namespace

Operand xlogy(PointwiseWriter& write, const Node& node) {
  return times_log(write, node, PointwiseOp::log);
}

Operand xlog1py(PointwiseWriter& write, const Node& node) {
  return times_log(write, node, PointwiseOp::log1p);
}

/// sin(pi x) / (pi x); 1 at 0.
Operand sinc(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self"),
                turned = write.call(PointwiseOp::mul, {x, write.number(std::numbers::pi)});
  const Operand wave = write.call(PointwiseOp::div, {write.call(PointwiseOp::sin, {turned}), turned});
  return write.call(PointwiseOp::where,
                    {write.call(PointwiseOp::eq, {x, write.number(0)}), write.number(1), wave});
}

/// Numbers in the place of NaN and infinities; the largest number for an infinity that has none.
Operand nan_to_num(PointwiseWriter& write, const Node& node) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const Operand x = write.argument(node, "self");
  const auto instead = [&](const char* name, double otherwise) {
    return write.number(number_arg(node, name).value_or(otherwise));
  };
  Operand made = write.call(PointwiseOp::where, {write.call(PointwiseOp::gt, {x, write.number(kLargest)}),
                                                 instead("posinf", kLargest), x});
  made = write.call(PointwiseOp::where, {write.call(PointwiseOp::lt, {x, write.number(-kLargest)}),
                                         instead("neginf", -kLargest), made});
  return write.call(PointwiseOp::where, {write.call(PointwiseOp::ne, {x, x}), instead("nan", 0), made});
}

/// log(e^a + e^b), from the larger one; of two infinities of one sign it is that.
Operand logaddexp(PointwiseWriter& write, const Node& node) {
  const Operand a = write.argument(node, "self"), b = write.argument(node, "other");
  const Operand apart = write.call(PointwiseOp::abs, {write.call(PointwiseOp::sub, {a, b})});
  const Operand more =
      write.call(PointwiseOp::log1p, {write.call(PointwiseOp::exp, {write.call(PointwiseOp::neg, {apart})})});
  const Operand made = write.call(PointwiseOp::add, {write.call(PointwiseOp::max, {a, b}), more});
  const Operand twice = write.call(PointwiseOp::add, {a, write.number(std::numbers::ln2)});
  return write.call(PointwiseOp::where, {write.call(PointwiseOp::eq, {a, b}), twice, made});
}

Operand frac(PointwiseWriter& write, const Node& node) {
  const Operand x = write.argument(node, "self");
  return write.call(PointwiseOp::sub, {x, write.call(PointwiseOp::trunc, {x})});
}

Operand exp2(PointwiseWriter& write, const Node& node) {
  return write.call(PointwiseOp::pow, {write.number(2), write.argument(node, "self")});
}

Operand deg2rad(PointwiseWriter& write, const Node& node) {
  return write.call(PointwiseOp::mul, {write.argument(node, "self"), write.number(std::numbers::pi / 180)});
}

Operand rad2deg(PointwiseWriter& write, const Node& node) {
  return write.call(PointwiseOp::mul, {write.argument(node, "self"), write.number(180 / std::numbers::pi)});
}

}  // namespace ulp::lowering
