// The bounds that an activation puts on results, as the table in base/activation.h has them; internal to the
// room.
#pragma once

#include <algorithm>

#include "ulp/kernels/element.h"

namespace ulp::kernels {

struct Clamp {
  float low, high;
};

/// Of float results; a curve has none.
inline Clamp clamp_of(Activation activation) {
  return {info_of(activation).low, info_of(activation).high};
}

/// Of u8 results, together with [0, 255]: in units of q's scale, its zero point not added.
inline Clamp clamp_of(Activation activation, const Affine& q) {
  const Clamp real = clamp_of(activation);
  return {std::max(real.low / q.scale, static_cast<float>(-q.zero_point)),
          std::min(real.high / q.scale, static_cast<float>(255 - q.zero_point))};
}

/// The curve that remains to be applied to f32 results, or none.
inline Activation curve_of(Activation activation) {
  return is_smooth_activation(activation) ? activation : Activation::none;
}

}  // namespace ulp::kernels
