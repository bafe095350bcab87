// The functions of pointwise programs in float64, to compare kernels and engines with.
#pragma once

#include <algorithm>
#include <cmath>

#include "ulp/kernels/pointwise/pointwise_list.h"

namespace ulp::test {

inline double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}
inline double softplus_of(double x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}
inline double with_nan(double a, double b, double chosen) {
  return std::isnan(a) || std::isnan(b) ? std::nan("") : chosen;
}

/// The functions of the list in float64; the compiler asks for each.
inline double exact_pointwise(kernels::PointwiseOp op, double a, double b, double c) {
  using enum kernels::PointwiseOp;
  switch (op) {
    case exact:
      return a;
    case add:
      return a + b;
    case sub:
      return a - b;
    case mul:
      return a * b;
    case div:
      return a / b;
    case min:
      return with_nan(a, b, std::min(a, b));
    case max:
      return with_nan(a, b, std::max(a, b));
    case pow:
      return std::pow(a, b);
    case fmod:
      return std::fmod(a, b);
    case atan2:
      return std::atan2(a, b);
    case eq:
      return a == b;
    case ne:
      return a != b;
    case lt:
      return a < b;
    case le:
      return a <= b;
    case gt:
      return a > b;
    case ge:
      return a >= b;
    case logical_and:
      return a != 0 && b != 0;
    case logical_or:
      return a != 0 || b != 0;
    case logical_xor:
      return (a != 0) != (b != 0);
    case where:
      return a != 0 ? b : c;
    case scaled_below:
      return a > 0 ? a : a * b;
    case neg:
      return -a;
    case abs:
      return std::abs(a);
    case sign:
      return std::isnan(a) ? a : (a > 0) - (a < 0);
    case logical_not:
      return a == 0;
    case square:
      return a * a;
    case reciprocal:
      return 1 / a;
    case sqrt:
      return std::sqrt(a);
    case rsqrt:
      return 1 / std::sqrt(a);
    case exp:
      return std::exp(a);
    case expm1:
      return std::expm1(a);
    case log:
      return std::log(a);
    case log1p:
      return std::log1p(a);
    case sin:
      return std::sin(a);
    case cos:
      return std::cos(a);
    case tan:
      return std::tan(a);
    case atan:
      return std::atan(a);
    case floor:
      return std::floor(a);
    case ceil:
      return std::ceil(a);
    case round:
      return std::nearbyint(a);
    case trunc:
      return std::trunc(a);
    case relu:
      return a < 0 ? 0 : a;
    case tanh:
      return std::tanh(a);
    case sigmoid:
      return sigmoid_of(a);
    case erf:
      return std::erf(a);
    case gelu:
      return 0.5 * a * (1 + std::erf(a / std::sqrt(2.0)));
    case gelu_tanh:
      return 0.5 * a * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
    case silu:
      return a * sigmoid_of(a);
    case softplus:
      return softplus_of(a);
    case mish:
      return a * std::tanh(softplus_of(a));
    case erfc:
      return std::erfc(a);
  }
  return 0;
}

}  // namespace ulp::test
