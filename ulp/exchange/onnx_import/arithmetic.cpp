// Arithmetic, comparisons and choices between tensors.
#include <torch/types.h>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/patterns.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// The other operand as a number in the call's arguments, where that changes no size of the result.
std::optional<at::Scalar> number_beside(Call& call, size_t i) {
  const std::optional<at::Scalar> number = call.scalar(i);
  if (!number || call.is_known(1 - i)) return std::nullopt;
  return call.known(i).dim() <= call.x(1 - i).dim() ? number : std::nullopt;
}

void add(Call& call) {
  if (const Tensor linear = linear_of(call); linear.defined()) return call.set(linear);
  if (const Tensor norm = layer_norm_of(call); norm.defined()) return call.set(norm);
  if (const auto number = number_beside(call, 1)) return call.set(at::add(call.x(0), *number));
  if (const auto number = number_beside(call, 0)) return call.set(at::add(call.x(1), *number));
  call.set(at::add(call.x(0), call.x(1)));
}

void sub(Call& call) {
  if (const auto number = number_beside(call, 1)) return call.set(at::sub(call.x(0), *number));
  if (const auto number = number_beside(call, 0)) return call.set(at::rsub(call.x(1), *number));
  call.set(at::sub(call.x(0), call.x(1)));
}

void mul(Call& call) {
  if (const Tensor activation = activation_of(call); activation.defined()) return call.set(activation);
  if (const auto number = number_beside(call, 1)) return call.set(at::mul(call.x(0), *number));
  if (const auto number = number_beside(call, 0)) return call.set(at::mul(call.x(1), *number));
  call.set(at::mul(call.x(0), call.x(1)));
}

/// Whole numbers are cut off towards 0.
void div(Call& call) {
  const Tensor a = call.x(0);
  const bool whole = !at::isFloatingType(a.scalar_type());
  if (const auto number = number_beside(call, 1); number && !whole) return call.set(at::div(a, *number));
  const Tensor b = call.x(1);
  if (whole && call.is_known(1) && at::any(at::eq(call.known(1), 0)).item<bool>())
    call.refuse("expected whole numbers to be divided by other numbers than 0");
  call.set(whole ? at::div(a, b, "trunc") : at::div(a, b));
}

/// The result has the sign of the divisor, or of the dividend where fmod is 1.
void mod(Call& call) {
  const Tensor a = call.x(0), b = call.x(1);
  if (!at::isFloatingType(a.scalar_type()) && call.is_known(1) &&
      at::any(at::eq(call.known(1), 0)).item<bool>())
    call.refuse("expected whole numbers to be divided by other numbers than 0");
  call.set(call.attribute("fmod", int64_t{0}) != 0 ? at::fmod(a, b) : at::remainder(a, b));
}

void pow(Call& call) {
  const Tensor x = call.x(0);
  if (const auto number = number_beside(call, 1)) {
    // A whole exponent keeps whole numbers whole.
    const bool whole =
        !at::isFloatingType(x.scalar_type()) || number->toDouble() == static_cast<double>(number->toLong());
    return call.set(whole ? at::pow(x, number->toLong()) : at::pow(x, *number));
  }
  call.set(at::pow(x, call.x(1)).to(x.scalar_type()));
}

using Binary = Tensor (*)(const Tensor&, const Tensor&);
using BinaryNumber = Tensor (*)(const Tensor&, const at::Scalar&);

template <BinaryNumber with_number, Binary with_tensor>
void compare(Call& call) {
  if (const auto number = number_beside(call, 1)) return call.set(with_number(call.x(0), *number));
  call.set(with_tensor(call.x(0), call.x(1)));
}

template <Binary function>
void both(Call& call) {
  call.set(function(call.x(0), call.x(1)));
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

void cumsum(Call& call) {
  if (call.attribute("exclusive", int64_t{0}) != 0 || call.attribute("reverse", int64_t{0}) != 0)
    call.refuse("expected a sum from the front that includes the element");
  const Tensor x = call.x(0);
  call.set(at::cumsum(x, call.dim(call.integer(1), x.dim()), x.scalar_type()));
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
                                         {"CumSum", cumsum}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
