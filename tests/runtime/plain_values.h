// What plain loops read: constants of a plan, and codes of layers that quantize as they run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime::plain {

/// Element i of a constant.
template <typename T>
T constant_at(const Plan& plan, const Step& step, const char* role, int64_t i) {
  T value;
  std::memcpy(&value,
              plan.constants.at(step.constants.at(role)).bytes.data() + static_cast<size_t>(i) * sizeof(T),
              sizeof(T));
  return value;
}

/// Scale and zero point of values in [low, high], in the arithmetic that kernels/linear/dynamic_linear.h documents.
struct Quantizer {
  float inverse, scale;
  int64_t zero;
  Quantizer(float low, float high)
      : scale(high == low ? 1.0F : static_cast<float>((double{high} - double{low}) / 255)) {
    inverse = 1.0F / scale;
    const double span = high == low ? 1.0 : (double{high} - double{low}) / 255;
    zero = static_cast<int64_t>(std::clamp(std::nearbyint(-double{low} / span), 0.0, 255.0));
  }
  int64_t centered(float x) const {
    const auto code = static_cast<int64_t>(std::nearbyint(x * inverse)) + zero;
    return std::clamp<int64_t>(code, 0, 255) - zero;
  }
};

}  // namespace ulp::runtime::plain
