// Integers of 8 and 16 bits in the f32 of pointwise steps: results that leave their range wrap around, as in LibTorch.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "ulp/lower/match.h"
#include "ulp/lower/pointwise.h"
#include "ulp/lower/pointwise_functions.h"

namespace ulp::lowering {

using graph::Node;

namespace {

/// Ops that give one of their operands, a part of one, or a number that fits.
constexpr std::string_view kStayInRange[] = {
    "aten::where",        "aten::masked_fill", "aten::maximum",    "aten::minimum",     "aten::clamp",
    "aten::clip",         "aten::clamp_min",   "aten::clamp_max",  "aten::remainder",   "aten::fmod",
    "aten::floor_divide", "aten::bitwise_and", "aten::bitwise_or", "aten::bitwise_xor", "aten::__and__",
    "aten::__or__",       "aten::__xor__",     "aten::relu",       "aten::relu6",       "aten::sign",
    "aten::ones_like",    "aten::zeros_like"};

/// Bits of the node's integers; 0 for other types.
int narrow_bits(const Node& node) {
  const std::optional<graph::TensorMeta>& meta = node.output()->meta;
  if (!meta || !at::isIntegralType(meta->dtype, /*includeBool=*/false)) return 0;
  const auto bits = static_cast<int>(8 * c10::elementSize(meta->dtype));
  return bits <= 16 ? bits : 0;
}

bool has_sign(const Node& node) {
  return c10::isSignedType(node.output()->meta->dtype);
}

}  // namespace

/// x modulo 2^bits, which is not negative.
Operand low_bits(PointwiseWriter& write, Operand x, int bits) {
  const double size = std::ldexp(1.0, bits);
  const Operand turns =
      write.call(PointwiseOp::floor, {write.call(PointwiseOp::mul, {x, write.number(1 / size)})});
  return write.call(PointwiseOp::sub, {x, write.call(PointwiseOp::mul, {turns, write.number(size)})});
}

Wrapping wrapping_of(const Node& node) {
  if (narrow_bits(node) == 0 || std::ranges::count(kStayInRange, node.op()) > 0) return {};
  return has_sign(node) ? Wrapping{6, 4} : Wrapping{4, 2};
}

Operand wrapped(PointwiseWriter& write, const Node& node, Operand x) {
  if (wrapping_of(node).functions == 0) return x;
  const int bits = narrow_bits(node);
  if (x.kind == Operand::Kind::number) {
    const double size = std::ldexp(1.0, bits), least = has_sign(node) ? -size / 2 : 0;
    return write.number(x.number - size * std::floor((x.number - least) / size));
  }
  if (bits > 8 &&
      (node.is("aten::pow") || node.op().find("mul") != std::string_view::npos || node.is("aten::square")))
    unsupported(node, "expected products of integers that f32 holds, got some of ", bits, " bits");
  if (!has_sign(node)) return low_bits(write, x, bits);
  const Operand half = write.number(std::ldexp(1.0, bits - 1));
  return write.call(PointwiseOp::sub, {low_bits(write, write.call(PointwiseOp::add, {x, half}), bits), half});
}

}  // namespace ulp::lowering
