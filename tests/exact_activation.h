// The activations of base/activation.h in float64, for the tests of every room. A new row of the table needs
// its formula here: the compiler asks for it.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ulp/base/activation.h"

namespace ulp::test {

/// The activation's value at x.
inline double exact_activation(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
    case Activation::relu:
    case Activation::relu6:
      return std::min(std::max(x, double{info_of(activation).low}), double{info_of(activation).high});
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x * M_SQRT1_2);
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::hardsigmoid:
      return std::clamp(x + 3, 0.0, 6.0) / 6;
    case Activation::hardswish:
      return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return NAN;
}

/// The rows of the table that are curves.
inline std::vector<Activation> all_curves() {
  std::vector<Activation> curves;
  for (int i = 0; i < kActivationCount; ++i) {
    if (is_smooth_activation(static_cast<Activation>(i))) curves.push_back(static_cast<Activation>(i));
  }
  return curves;
}

}  // namespace ulp::test
