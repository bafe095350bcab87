// The learned factors of a binary layer, and the mean ones. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "ulp/quant/binary/binary_options.h"

namespace ulp::quant {

/// A factor that is trained, shaped to multiply the result of a layer without its batch; by the name of its
/// parameter.
using NamedScale = std::pair<std::string, at::Tensor>;

/// What training starts from: a[o] at the mean of |W|, the others at 1. `result`: the sizes of one result, [O] or
/// [O, ...]. Throws ulp::Error for factors of pixels where the result is no image.
std::vector<NamedScale> start_scales(BinaryScale scale, const at::Tensor& weight, at::IntArrayRef result);

/// Of each output the mean of |W|, shaped [O, 1, ...] to multiply a result of so many dimensions, its batch not counted.
at::Tensor mean_scale(const at::Tensor& weight, int64_t dims);

/// Why no box filter (aten::avg_pool) goes over the image as this convolution does; empty where one does.
std::string box_obstacle(at::IntArrayRef kernel, at::IntArrayRef padding, at::IntArrayRef dilation);

}  // namespace ulp::quant
