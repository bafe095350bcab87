// Convolution that stays clear of a fault in LibTorch's CPU backend.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "ulp/base/export.h"

namespace torch::nn {
class Conv2dImpl;
}

namespace ulp::libtorch {

/// True for what oneDNN 3.12 gets wrong: the backward of a 1x1 convolution with a stride, fewer input
/// channels than a vector holds (under 16) and channels_last data writes past its buffers (free(): invalid
/// pointer).
ULP_API bool needs_conv_guard(const at::Tensor& weight, at::IntArrayRef stride);

/// The layer's own forward, except where needs_conv_guard() says otherwise: there the pixels that the stride
/// keeps are picked first (a max-pool of one pixel, which is exact and which runtimes know) and convolved
/// with stride 1.
ULP_API at::Tensor guarded_conv2d(torch::nn::Conv2dImpl& layer, const at::Tensor& input);

}  // namespace ulp::libtorch
