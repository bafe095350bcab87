// Integers of 8 and 16 bits in the f32 of pointwise steps: results that leave their range wrap around, as in
// LibTorch.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/ids.h"
#include "ulp/lower/match.h"
#include "ulp/lower/pointwise.h"
#include "ulp/lower/pointwise_functions.h"

namespace ulp::lowering {

using graph::Node;

namespace {

/// Ops that give one of their operands, a part of one, or a number that fits. The quotient of the least
/// number and -1 does not.
constexpr std::string_view kStayInRange[] = {
    "aten::where",       "aten::masked_fill", "aten::maximum",     "aten::minimum",   "aten::clamp",
    "aten::clip",        "aten::clamp_min",   "aten::clamp_max",   "aten::remainder", "aten::fmod",
    "aten::bitwise_and", "aten::bitwise_or",  "aten::bitwise_xor", "aten::__and__",   "aten::__or__",
    "aten::__xor__",     "aten::relu",        "aten::relu6",       "aten::sign",      "aten::ones_like",
    "aten::zeros_like"};

/// Bits of integers of up to 16; 0 for other types.
int narrow_bits(at::ScalarType type) {
  if (!at::isIntegralType(type, /*includeBool=*/false)) return 0;
  const auto bits = static_cast<int>(8 * c10::elementSize(type));
  return bits <= 16 ? bits : 0;
}

int narrow_bits(const Node& node) {
  const std::optional<graph::TensorMeta>& meta = node.output()->meta;
  return meta ? narrow_bits(meta->dtype) : 0;
}

bool has_sign(const Node& node) {
  return c10::isSignedType(node.output()->meta->dtype);
}

/// The largest absolute value that the node's result has before it wraps around, and that is reached on the
/// way.
double largest_result(const Node& node, double largest) {
  if (node.is("aten::square")) return largest * largest;
  if (node.is("aten::mul")) {
    const std::optional<double> number = graph::number(node.arg("other"));
    return largest * (number ? std::abs(in_range_of(node.output()->meta->dtype, *number)) : largest);
  }
  if (is_any(node, {"aten::add", "aten::sub", "aten::rsub"}))
    return largest * (1 + std::abs(number_arg(node, "alpha").value_or(1)));
  if (node.is("aten::addcmul"))
    return largest * (1 + largest * std::max(1.0, std::abs(number_arg(node, "value").value_or(1))));
  if (!node.is("aten::pow")) return largest;
  const std::optional<double> exponent = graph::number(node.arg("exponent"));
  return exponent && *exponent >= 0 ? std::pow(largest, *exponent) : HUGE_VAL;
}

/// Throws Unsupported where low bits of a result would be lost in f32 before it wraps around.
void expect_low_bits(const Node& node) {
  const int bits = narrow_bits(node);
  const double largest = has_sign(node) ? std::ldexp(1.0, bits - 1) : std::ldexp(1.0, bits) - 1;
  if (largest_result(node, largest) <= static_cast<double>(kExactInFloat)) return;
  unsupported(node, "expected results of at most 2^24, which f32 holds, before they wrap around in ", bits,
              " bits");
}

/// Throws Unsupported for an operand that LibTorch brings to the node's type, where it may wrap around.
void expect_operands_in_range(const Node& node) {
  const at::ScalarType own = node.output()->meta->dtype;
  for (const graph::Argument& arg : node.args) {
    if (!arg.is_value() || !arg.value->meta) continue;
    const at::ScalarType type = arg.value->meta->dtype;
    if (type == own || !at::isIntegralType(type, /*includeBool=*/false)) continue;
    const bool held = c10::elementSize(type) < c10::elementSize(own) &&
                      (c10::isSignedType(own) || !c10::isSignedType(type));
    if (!held && arg.value->producer->kind() != Node::Kind::attribute)
      unsupported(node, "expected operands of ", own, ", got '", arg.value->name, "' of ", type);
  }
}

/// Casts, whose result wraps around itself, and what reads sizes alone.
bool takes_any_type(const Node& node) {
  return is_any(node, {"aten::to", "aten::type_as", "aten::_to_copy", "aten::full_like", "aten::ones_like",
                       "aten::zeros_like"});
}

}  // namespace

/// x modulo 2^bits, which is not negative.
Operand low_bits(PointwiseWriter& write, Operand x, int bits) {
  const double size = std::ldexp(1.0, bits);
  const Operand turns =
      write.call(PointwiseOp::floor, {write.call(PointwiseOp::mul, {x, write.number(1 / size)})});
  return write.call(PointwiseOp::sub, {x, write.call(PointwiseOp::mul, {turns, write.number(size)})});
}

bool may_grow(const Node& node) {
  const std::optional<graph::TensorMeta>& meta = node.output()->meta;
  if (!meta || (meta->dtype != at::kInt && meta->dtype != at::kLong)) return false;
  return is_any(node, {"aten::add", "aten::sub", "aten::rsub", "aten::mul", "aten::pow", "aten::square",
                       "aten::addcmul", "aten::bitwise_not"});
}

Wrapping wrapping_of(const Node& node) {
  if (may_grow(node)) return {find_pointwise(node)->functions, 0};
  if (narrow_bits(node) == 0 || std::ranges::count(kStayInRange, node.op()) > 0) return {};
  return has_sign(node) ? Wrapping{5, 3} : Wrapping{4, 2};
}

double in_range_of(at::ScalarType type, double x) {
  const int bits = narrow_bits(type);
  if (bits == 0 || x != std::floor(x) || !std::isfinite(x)) return x;
  const double size = std::ldexp(1.0, bits), least = c10::isSignedType(type) ? -size / 2 : 0;
  return x - size * std::floor((x - least) / size);
}

Operand wrapped(PointwiseWriter& write, const Node& node, Operand x) {
  if (narrow_bits(node) > 0 && !takes_any_type(node)) expect_operands_in_range(node);
  if (narrow_bits(node) == 0 || wrapping_of(node).functions == 0) return x;
  if (x.kind == Operand::Kind::number) return write.number(in_range_of(node.output()->meta->dtype, x.number));
  expect_low_bits(node);
  const int bits = narrow_bits(node);
  if (!has_sign(node)) return low_bits(write, x, bits);
  const double size = std::ldexp(1.0, bits);
  const Operand turns = write.call(
      PointwiseOp::floor,
      {write.call(PointwiseOp::add,
                  {write.call(PointwiseOp::mul, {x, write.number(1 / size)}), write.number(0.5)})});
  return write.call(PointwiseOp::sub, {x, write.call(PointwiseOp::mul, {turns, write.number(size)})});
}

}  // namespace ulp::lowering
