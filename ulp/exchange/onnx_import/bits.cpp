// Bits of whole numbers, and arithmetic of the unsigned types for which LibTorch has none.
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/operands.h"
#include "ulp/exchange/onnx_import/unsigned.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

bool is_wide_unsigned(at::ScalarType type) {
  return type == at::kUInt16 || type == at::kUInt32 || type == at::kUInt64;
}

/// Of 64 bits without a sign: nothing follows from the left.
Tensor shifted_right(const Tensor& x, const Tensor& by, at::ScalarType type) {
  constexpr int64_t kBits = 64;
  const Tensor moved = at::bitwise_right_shift(x, by);
  if (type != at::kUInt64) return moved;
  const Tensor ones = at::bitwise_not(at::bitwise_left_shift(at::full_like(x, -1), at::rsub(by, kBits)));
  return at::where(at::eq(by, 0), x, at::bitwise_and(moved, ones));
}

/// A shift by less than 0 or by all bits leaves the sign alone, as LibTorch has it.
Tensor shifted(const Call& call, const Tensor& x, const Tensor& by, at::ScalarType type) {
  const std::string direction = call.attribute("direction", "");
  if (direction == "LEFT") return at::bitwise_left_shift(x, by);
  if (direction != "RIGHT") call.refuse("expected direction LEFT or RIGHT, got '", direction, "'");
  return shifted_right(x, by, type);
}

void bit_shift(Call& call) {
  const Tensor x = call.x(0);
  call.set(shifted(call, x, call.x(1), x.scalar_type()));
}

/// Whether a < b. Of 64 bits without a sign, a number that LibTorch takes for one below 0 is larger than all others.
Tensor is_less(const Tensor& a, const Tensor& b, at::ScalarType type) {
  if (type != at::kUInt64) return at::lt(a, b);
  const Tensor large = at::lt(b, 0);
  return at::where(at::eq(at::lt(a, 0), large), at::lt(a, b), large);
}

/// Quotients of 64 bits without a sign: of half the number, twice, and one more where the rest is a divisor
/// still. A divisor with the highest bit goes once into what is not below it.
Tensor wide_quotient(const Tensor& a, const Tensor& b) {
  const auto not_below = [](const Tensor& x, const Tensor& y) {
    return at::logical_not(is_less(x, y, at::kUInt64));
  };
  const Tensor large = at::lt(b, 0), divisor = at::masked_fill(b, large, 1);
  const Tensor half = at::bitwise_and(at::bitwise_right_shift(a, 1), std::numeric_limits<int64_t>::max());
  const Tensor near = at::mul(at::div(half, divisor, "trunc"), 2);
  const Tensor rest = at::sub(a, at::mul(near, divisor));
  const Tensor quotient = at::add(near, not_below(rest, divisor).to(at::kLong));
  return at::where(large, not_below(a, b).to(at::kLong), quotient);
}

/// Quotients and remainders; 0 divides as 1, as in arithmetic.cpp.
Tensor divided(const Call& call, const Tensor& a, const Tensor& b, at::ScalarType type) {
  const Tensor divisor = at::masked_fill(b, at::eq(b, 0), 1);
  const bool rest = call.node().op == "Mod";
  if (type != at::kUInt64) return rest ? at::remainder(a, divisor) : at::div(a, divisor, "trunc");
  const Tensor quotient = wide_quotient(a, divisor);
  return rest ? at::sub(a, at::mul(quotient, divisor)) : quotient;
}

/// A function that asks which number is larger.
Tensor of_order(const Call& call, const Tensor& a, const Tensor& b, at::ScalarType type) {
  const std::string& op = call.node().op;
  if (op == "Max") return at::where(is_less(a, b, type), b, a);
  if (op == "Min") return at::where(is_less(b, a, type), b, a);
  if (op == "Less") return is_less(a, b, type);
  if (op == "Greater") return is_less(b, a, type);
  return at::logical_not(op == "LessOrEqual" ? is_less(b, a, type) : is_less(a, b, type));
}

/// A function of two numbers as numbers of 64 bits, which may have a sign where theirs have none.
Tensor of_two(const Call& call, const Tensor& a, const Tensor& b, at::ScalarType type) {
  const std::string& op = call.node().op;
  if (op == "Add" || op == "Sum") return at::add(a, b);
  if (op == "Sub") return at::sub(a, b);
  if (op == "Mul") return at::mul(a, b);
  if (op == "Equal") return at::eq(a, b);
  if (op == "BitwiseAnd") return at::bitwise_and(a, b);
  if (op == "BitwiseOr") return at::bitwise_or(a, b);
  if (op == "BitwiseXor") return at::bitwise_xor(a, b);
  if (op == "BitShift") return shifted(call, a, b, type);
  if (op == "Div" || op == "Mod") return divided(call, a, b, type);
  return of_order(call, a, b, type);
}

constexpr std::string_view kOfTwo[] = {
    "Add",   "Sum",        "Sub",       "Mul",         "Div",     "Mod",
    "Max",   "Min",        "Less",      "LessOrEqual", "Greater", "GreaterOrEqual",
    "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor",  "BitShift"};

/// The same bits as numbers of another type.
void bit_cast(Call& call) {
  const Tensor x = call.x(0);
  const at::ScalarType type = scalar_type(call.attribute("to", int64_t{0}), call.node().label());
  if (static_cast<int64_t>(c10::elementSize(type)) != x.element_size())
    call.refuse("expected a type of ", x.element_size(), " bytes, got one of ", c10::elementSize(type));
  call.set(x.scalar_type() == type ? x : x.view(type));
}

}  // namespace

bool unsigned_arithmetic(Call& call) {
  const std::string& op = call.node().op;
  const bool one = op == "BitwiseNot";
  if (!call.node().domain.empty() || (!one && std::ranges::find(kOfTwo, op) == std::end(kOfTwo)))
    return false;
  if (!call.has(0) || !is_wide_unsigned(call.type(0))) return false;
  const at::ScalarType type = call.type(0);
  Tensor result = call.x(0).to(at::kLong);
  if (one) result = at::bitwise_not(result);
  for (size_t i = 1; i < call.inputs(); ++i) {
    const Tensor other = i == 1 ? second_operand(call) : call.x(i);
    if (other.scalar_type() != type) call.refuse("expected operands of one type");
    result = of_two(call, result, other.to(at::kLong), type);
  }
  call.set(result.scalar_type() == at::kBool ? result : result.to(type));
  return true;
}

ConverterTable bits_table() {
  static constexpr Converter kTable[] = {{"BitShift", bit_shift}, {"BitCast", bit_cast, first_input}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
