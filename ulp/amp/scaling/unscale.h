// The pass over an optimizer's gradients that unscales them and looks for inf and NaN.
#pragma once

#include <optional>

namespace torch::optim {
class Optimizer;
}

namespace ulp::amp {

struct UnscaleOptions {
  bool test_unscaled = false;  ///< an inverse above 1 can make an inf: that counts as one, too
  bool allow_half = false;     ///< fp16 gradients are no error
  bool verdict = true;         ///< false: nothing is returned, and nothing waited for
};

/// Multiplies every gradient of the optimizer by `inverse_scale` in place (leaves them when it is 1), in
/// fp32, rounded to the gradient's type. Returns whether one of them was not finite, before or
/// (test_unscaled) after that; nothing when no parameter has a gradient. Works on the gradients' own devices
/// and waits once for each of them. Throws before it has changed anything when a gradient is fp16 (unless
/// allowed) or not real floating point.
std::optional<bool> unscale_gradients(torch::optim::Optimizer& optimizer, float inverse_scale,
                                      const UnscaleOptions& options = {});

}  // namespace ulp::amp
