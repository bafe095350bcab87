// The integers of a layer's bias: the one rounding and the one limit, for conversion, for training, which
// must foresee them, and for lowering. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ulp/base/export.h"

namespace ulp::quant {

/// Largest magnitude of a bias in int32: half of the range. The other half is left to the products that are
/// summed beside it, enough for 2^30 / (255 * 128), more than 32,000, of the largest ones.
inline constexpr double kLargestBias = 1 << 30;

/// The smallest weight scales (f32, as many as `count`: 1 or one a channel) with which the bias keeps to
/// kLargestBias. It matters for channels of (almost) zero weights only, where a coarser scale costs nothing:
/// a step of the weights stays below 2^-30 of the bias.
ULP_API at::Tensor smallest_weight_scale(const at::Tensor& bias, const at::Tensor& input_scale,
                                         int64_t count);

/// The bias in int32, in steps of `scales`: f32, one a channel, input scale times weight scale; rounded half
/// to even. Nothing where a code is beyond kLargestBias by more than the two roundings to float32 that lie in
/// the scales of smallest_weight_scale(): nothing is saturated.
ULP_API std::optional<at::Tensor> bias_codes(const at::Tensor& bias, const at::Tensor& scales);

}  // namespace ulp::quant
