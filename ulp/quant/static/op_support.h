// What the operators of ops.h share: checks of their arguments and how a dense tensor lies in memory.
// Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace ulp::quant {

/// How one dense tensor lies in memory, seen from its channel dimension: element (o, c, i) is at
/// (o * channels + c) * inner + i, whatever the order of the other dimensions (so channels_last needs no
/// copy).
struct Blocks {
  int64_t outer = 1, channels = 1, inner = 1;
};
Blocks blocks_of(const at::Tensor& dense, int64_t axis);

/// One scale and zero point, or one for each channel: f32, contiguous, on the device of x.
struct Params {
  at::Tensor scale, zero_point;
};
/// Throws ulp::Error for an axis that x does not have and for another number of parameters.
Params check_params(const char* where, const at::Tensor& x, const at::Tensor& scale,
                    const at::Tensor& zero_point, int64_t axis);
/// Throws ulp::Error unless lowest <= qmin <= qmax <= highest.
void check_codes(const char* where, int64_t qmin, int64_t qmax, int64_t lowest, int64_t highest);
void check_floating(const char* where, const at::Tensor& x);

/// Shaped so that it multiplies x along the axis.
at::Tensor along(const at::Tensor& params, const at::Tensor& x, int64_t axis);

/// Codes minus zero point by LibTorch's operators, for devices without a kernel of ours.
at::Tensor centered_generic(const at::Tensor& x, const Params& params, int64_t axis, int64_t qmin,
                            int64_t qmax);

/// The typed handle of an operator registered with the dispatcher.
template <typename Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace ulp::quant
