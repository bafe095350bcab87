// The pass over an optimizer's gradients that unscales them and looks for inf and NaN.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace ulp::amp {

/// Multiplies every gradient of the optimizer by `inverse_scale` in place (leaves them when it is 1). Returns
/// one fp32 scalar per device that holds gradients, non-zero if a gradient there was not finite before or,
/// with `test_unscaled`, after that (which an inverse above 1 can make of it). Throws before it has changed
/// anything when a gradient is fp16 or not real floating point.
std::vector<at::Tensor> unscale_gradients(torch::optim::Optimizer& optimizer, float inverse_scale,
                                          bool test_unscaled = false);

}  // namespace ulp::amp
