// Functions of each element.
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "ulp/graph/decompose/table.h"

namespace ulp::graph {

namespace {

using V = Formula::V;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// In the type of the result.
V operand_as_result(Formula& f, const char* argument) {
  return f.to(f.operand(argument), f.type());
}

void hypot(Formula& f) {
  f.result(hypotenuse(f, operand_as_result(f, "self"), operand_as_result(f, "other")));
}

/// Below 0, or -0.0, whose reciprocal is -infinity. A NaN has no sign here.
V has_sign(Formula& f, V x) {
  V below = f.compare("aten::lt", x, 0.0);
  if (!at::isFloatingType(x->meta->dtype)) return below;
  return f.either(below, f.compare("aten::lt", f.map("aten::reciprocal", x), 0.0));
}

void signbit(Formula& f) {
  f.result(has_sign(f, f.operand("self")));
}

void copysign(Formula& f) {
  V size = f.abs(operand_as_result(f, "self"));
  if (f.is_tensor("other")) return f.result(f.where(has_sign(f, f.operand("other")), f.neg(size), size));
  f.result(std::signbit(f.number("other")) ? f.neg(size) : size);
}

void heaviside(Formula& f) {
  V x = f.operand("self");
  V step = f.to(f.compare("aten::gt", x, 0.0), f.type());
  f.result(f.where(f.compare("aten::eq", x, 0.0), f.operand("values"), step));
}

/// The larger or the smaller one; of a NaN and a number the number.
void number_of_two(Formula& f) {
  V a = operand_as_result(f, "self"), b = operand_as_result(f, "other");
  V both = f.both(f.node().is("aten::fmax") ? "aten::maximum" : "aten::minimum", a, b);
  if (!f.floats()) return f.result(both);
  f.result(f.where(f.compare("aten::ne", a, a), b, f.where(f.compare("aten::ne", b, b), a, both)));
}

void one_infinity(Formula& f) {
  const double wanted = f.node().is("aten::isposinf") ? kInfinite : -kInfinite;
  V x = f.operand("self");
  if (!at::isFloatingType(x->meta->dtype)) throw CannotWrite{"expected floats"};
  f.result(f.compare("aten::eq", x, wanted));
}

/// log2(2^a + 2^b); of two infinities of one sign it is that.
void logaddexp2(Formula& f) {
  V a = operand_as_result(f, "self"), b = operand_as_result(f, "other");
  constexpr double kLn2 = 0.693147180559945309417232121458;
  V far = f.exp(f.mul(f.neg(f.abs(f.sub(a, b))), kLn2));
  V more = f.div(f.map("aten::log1p", far), kLn2);
  f.result(f.where(f.compare("aten::eq", a, b), f.add(a, 1), f.add(f.maximum(a, b), more)));
}

/// How many of the sorted numbers [.., n] lie before each x [.., m, 1]: those that do not come behind it,
/// or, from the right, behind or at it. Behind all of them lies a NaN.
V count_before(Formula& f, V sorted, V x, bool from_right) {
  V behind = f.compare(from_right ? "aten::gt" : "aten::ge", sorted, x);
  V before = f.to(f.map("aten::logical_not", behind), at::kFloat);
  const int64_t last = std::ssize(before->meta->sizes) - 1;
  return f.to(f.squeeze(f.reduce("aten::sum.dim_IntList", before, {last}), {last}), f.type());
}

constexpr int64_t kMostBounds = 4096;  // each is compared with each element

/// The n bounds of each row.
V bounds_of_rows(Formula& f, const char* argument) {
  V bounds = f.operand(argument);
  if (bounds->meta->sizes.empty()) throw CannotWrite{"expected bounds of one dimension or more"};
  const int64_t count = Formula::size(bounds, std::ssize(bounds->meta->sizes) - 1);
  if (count < 1 || count > kMostBounds)
    throw CannotWrite{"expected 1 to " + std::to_string(kMostBounds) + " bounds, got " +
                      std::to_string(count)};
  return bounds;
}

void bucketize(Formula& f) {
  V x = f.operand("self"), bounds = bounds_of_rows(f, "boundaries");
  f.result(count_before(f, bounds, f.unsqueeze(x, std::ssize(x->meta->sizes)), f.flag("right")));
}

void searchsorted(Formula& f) {
  V x = f.operand("self"), sorted = bounds_of_rows(f, "sorted_sequence");
  if (!f.node().arg("sorter").is_none()) throw CannotWrite{"expected no sorter"};
  const Argument& side = f.node().arg("side");
  const bool right = f.flag("right") ||
                     (!side.is_none() && side.literal.isString() && side.literal.toStringRef() == "right");
  const int64_t rank = std::ssize(sorted->meta->sizes);
  V rows = rank == 1 ? sorted : f.unsqueeze(sorted, rank - 1);  // [.., 1, n]
  f.result(count_before(f, rows, f.unsqueeze(x, std::ssize(x->meta->sizes)), right));
}

void true_divide(Formula& f) {
  V x = operand_as_result(f, "self");
  f.result(f.is_tensor("other") ? f.div(x, operand_as_result(f, "other")) : f.div(x, f.number("other")));
}

/// x 2^other.
void ldexp(Formula& f) {
  V x = operand_as_result(f, "self"), power = operand_as_result(f, "other");
  f.result(f.mul(x, f.call("aten::pow.Scalar", {c10::IValue(2.0), power}, f.type(), power->meta->sizes)));
}

}  // namespace

V hypotenuse(Formula& f, V a, V b) {
  a = f.abs(a);
  b = f.abs(b);
  V most = f.maximum(a, b), ratio = f.div(f.both("aten::minimum", a, b), most);
  V length = f.mul(most, f.sqrt(f.add(f.mul(ratio, ratio), 1)));
  V infinite = f.either(f.compare("aten::eq", a, kInfinite), f.compare("aten::eq", b, kInfinite));
  return f.where(infinite, kInfinite, f.where(f.compare("aten::eq", most, 0.0), 0.0, length));
}

DecomposeTable decomposed_functions() {
  static constexpr DecomposeRow kTable[] = {{"aten::hypot", hypot},
                                            {"aten::signbit", signbit},
                                            {"aten::copysign", copysign},
                                            {"aten::heaviside", heaviside},
                                            {"aten::fmax", number_of_two},
                                            {"aten::fmin", number_of_two},
                                            {"aten::isposinf", one_infinity},
                                            {"aten::isneginf", one_infinity},
                                            {"aten::logaddexp2", logaddexp2},
                                            {"aten::bucketize.Tensor", bucketize},
                                            {"aten::searchsorted.Tensor", searchsorted},
                                            {"aten::true_divide", true_divide},
                                            {"aten::ldexp.Tensor", ldexp}};
  return kTable;
}

}  // namespace ulp::graph
