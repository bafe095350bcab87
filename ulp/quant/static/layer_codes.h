// The integers of a layer's bias, shared by conversion and by training, which must foresee them. Internal.
#pragma once

#include <ATen/core/Tensor.h>

namespace ulp::quant {

/// The smallest weight scales (f32, as many as `count`: 1 or one a channel) with which the bias fits into 32
/// bits beside the products. It matters for channels of (almost) zero weights only, where a coarser scale
/// costs nothing: a step of the weights stays below 2^-30 of the bias.
at::Tensor smallest_weight_scale(const at::Tensor& bias, const at::Tensor& input_scale, int64_t count);

/// The bias in int32, in steps of `scales`: f32, one a channel, input scale times weight scale.
at::Tensor bias_codes(const at::Tensor& bias, const at::Tensor& scales);

}  // namespace ulp::quant
