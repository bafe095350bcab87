// Arithmetic, comparisons and choices between tensors.
#include <torch/types.h>

#include <cmath>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/operands.h"
#include "ulp/exchange/onnx_import/patterns.h"

namespace ulp::exchange::onnx_import {

using at::Tensor;

/// Until opset 7, the second operand lies along the dimensions of the first from attribute 'axis' on.
bool has_axis(const Call& call) {
  constexpr int64_t kBroadcasts = 7;
  return call.opset() < kBroadcasts && call.has_attribute("axis");
}

Tensor second_operand(Call& call) {
  const Tensor b = call.x(1);
  if (!has_axis(call)) return b;
  const int64_t rank = call.x(0).dim(), axis = call.dim(call.attribute("axis", int64_t{0}), rank);
  if (axis + b.dim() > rank) call.refuse("expected an axis that leaves room for ", b.dim(), " dimensions");
  std::vector<int64_t> sizes = b.sizes().vec();
  sizes.resize(static_cast<size_t>(rank - axis), 1);
  return at::reshape(b, sizes);
}

namespace {

/// The other operand as a number in the call's arguments, where that changes no size of the result.
std::optional<at::Scalar> number_beside(Call& call, size_t i) {
  const std::optional<at::Scalar> number = call.scalar(i);
  if (!number || call.is_known(1 - i)) return std::nullopt;
  return call.known(i).dim() <= call.x(1 - i).dim() ? number : std::nullopt;
}

void add(Call& call) {
  if (has_axis(call)) return call.set(at::add(call.x(0), second_operand(call)));
  if (const Tensor linear = linear_of(call); linear.defined()) return call.set(linear);
  if (const Tensor norm = layer_norm_of(call); norm.defined()) return call.set(norm);
  if (const auto number = number_beside(call, 1)) return call.set(at::add(call.x(0), *number));
  if (const auto number = number_beside(call, 0)) return call.set(at::add(call.x(1), *number));
  call.set(at::add(call.x(0), call.x(1)));
}

void sub(Call& call) {
  if (const auto number = number_beside(call, 1)) return call.set(at::sub(call.x(0), *number));
  if (const auto number = number_beside(call, 0)) return call.set(at::rsub(call.x(1), *number));
  call.set(at::sub(call.x(0), second_operand(call)));
}

void mul(Call& call) {
  if (has_axis(call)) return call.set(at::mul(call.x(0), second_operand(call)));
  if (const Tensor activation = activation_of(call); activation.defined()) return call.set(activation);
  if (const auto number = number_beside(call, 1)) return call.set(at::mul(call.x(0), *number));
  if (const auto number = number_beside(call, 0)) return call.set(at::mul(call.x(1), *number));
  call.set(at::mul(call.x(0), call.x(1)));
}

/// Whole numbers to divide by. ONNX does not say what a division by 0 gives; where the divisor follows the
/// inputs, which are zeros while the graph is captured, 0 divides as 1.
Tensor whole_divisor(Call& call) {
  const Tensor b = second_operand(call);
  if (!call.is_known(1)) return at::masked_fill(b, at::eq(b, 0), 1);
  for (const at::Scalar& number : call.numbers(1)) {
    if (number.toLong() == 0) call.refuse("expected whole numbers to be divided by other numbers than 0");
  }
  return b;
}

/// Whole numbers are cut off towards 0.
void div(Call& call) {
  const Tensor a = call.x(0);
  const bool whole = !at::isFloatingType(a.scalar_type());
  if (const auto number = number_beside(call, 1); number && !whole) return call.set(at::div(a, *number));
  call.set(whole ? at::div(a, whole_divisor(call), "trunc") : at::div(a, second_operand(call)));
}

/// The result has the sign of the divisor, or of the dividend where fmod is 1.
void mod(Call& call) {
  const Tensor a = call.x(0);
  const Tensor b = at::isFloatingType(a.scalar_type()) ? call.x(1) : whole_divisor(call);
  call.set(call.attribute("fmod", int64_t{0}) != 0 ? at::fmod(a, b) : at::remainder(a, b));
}

/// The result has the type of the base: whole numbers to other exponents are cut off towards 0.
void pow(Call& call) {
  constexpr double kWholeInDouble = 0x1p53;
  const Tensor x = call.x(0);
  const at::ScalarType type = x.scalar_type();
  const bool whole_base = !at::isFloatingType(type);
  const auto number = number_beside(call, 1);
  if (!number) {
    const Tensor exponent = second_operand(call);
    if (whole_base && at::isFloatingType(exponent.scalar_type()))
      return call.set(at::pow(x.to(at::kDouble), exponent).to(type));
    return call.set(at::pow(x, exponent).to(type));
  }
  const double exponent = number->toDouble();
  const bool whole = std::abs(exponent) < kWholeInDouble && std::trunc(exponent) == exponent;
  if (whole && (!whole_base || exponent >= 0)) return call.set(at::pow(x, static_cast<int64_t>(exponent)));
  call.set(whole_base ? at::pow(x.to(at::kDouble), exponent).to(type) : at::pow(x, *number));
}

using Binary = Tensor (*)(const Tensor&, const Tensor&);
using BinaryNumber = Tensor (*)(const Tensor&, const at::Scalar&);

template <BinaryNumber with_number, Binary with_tensor>
void compare(Call& call) {
  if (const auto number = number_beside(call, 1)) return call.set(with_number(call.x(0), *number));
  call.set(with_tensor(call.x(0), second_operand(call)));
}

template <Binary function>
void both(Call& call) {
  call.set(function(call.x(0), second_operand(call)));
}

/// Of one tensor or more.
template <Binary function>
void all(Call& call) {
  Tensor result = call.x(0);
  for (size_t i = 1; i < call.inputs(); ++i) result = function(result, call.x(i));
  call.set(result);
}

Tensor plus(const Tensor& a, const Tensor& b) {
  return at::add(a, b);
}

void mean(Call& call) {
  all<plus>(call);
  const Tensor sum = call.results().at(0);
  call.set(at::div(sum, static_cast<double>(call.inputs())));
}

void where(Call& call) {
  if (const Tensor sign = sign_of(call); sign.defined()) return call.set(sign);
  const Tensor condition = call.x(0);
  call.set(at::where(condition, call.x(1), call.x(2)));
}

void trilu(Call& call) {
  const int64_t diagonal = call.has(1) ? call.integer(1) : 0;
  const Tensor x = call.x(0);
  call.set(call.attribute("upper", int64_t{1}) != 0 ? at::triu(x, diagonal) : at::tril(x, diagonal));
}

/// Sums or products of all elements before one and itself; where exclusive, without it; where reverse, from
/// the end.
template <Tensor (*function)(const Tensor&, int64_t, std::optional<at::ScalarType>)>
void cumulated(Call& call) {
  Tensor x = call.x(0);
  const int64_t dim = call.dim(call.integer(1), x.dim());
  const bool reverse = call.attribute("reverse", int64_t{0}) != 0;
  if (reverse) x = at::flip(x, {dim});
  if (call.attribute("exclusive", int64_t{0}) != 0) {
    const bool sums = call.node().op == "CumSum";
    const Tensor first = at::slice(x, dim, 0, 1);
    x = at::cat({sums ? at::zeros_like(first) : at::ones_like(first), at::slice(x, dim, 0, -1)}, dim);
  }
  const Tensor all = function(x, dim, x.scalar_type());
  call.set(reverse ? at::flip(all, {dim}) : all);
}

}  // namespace

ConverterTable arithmetic_table() {
  static constexpr Converter kTable[] = {{"Add", add},
                                         {"Sub", sub},
                                         {"Mul", mul},
                                         {"Div", div},
                                         {"Mod", mod},
                                         {"Pow", pow},
                                         {"Equal", compare<at::eq, at::eq>},
                                         {"Less", compare<at::lt, at::lt>},
                                         {"LessOrEqual", compare<at::le, at::le>},
                                         {"Greater", compare<at::gt, at::gt>},
                                         {"GreaterOrEqual", compare<at::ge, at::ge>},
                                         {"And", both<at::logical_and>},
                                         {"Or", both<at::logical_or>},
                                         {"Xor", both<at::logical_xor>},
                                         {"Max", all<at::maximum>},
                                         {"Min", all<at::minimum>},
                                         {"Sum", all<plus>},
                                         {"Mean", mean},
                                         {"Where", where},
                                         {"Trilu", trilu},
                                         {"CumSum", cumulated<at::cumsum>},
                                         {"CumProd", cumulated<at::cumprod>},
                                         {"BitwiseAnd", both<at::bitwise_and>},
                                         {"BitwiseOr", both<at::bitwise_or>},
                                         {"BitwiseXor", both<at::bitwise_xor>}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
