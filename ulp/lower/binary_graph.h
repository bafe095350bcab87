// The ops that fuse_binary() writes, which the engine has steps for; as ops of the dispatcher the graph still runs.
//
//   ulp::threshold_signs(Tensor x, Tensor threshold, Tensor flip, int dim) -> Tensor
//   ulp::binary_conv2d(Tensor signs, Tensor weight, Tensor scale, Tensor? bias, int[] stride, int[] padding,
//     int[] dilation, bool padding_one) -> Tensor
//   ulp::binary_conv2d_signs(Tensor signs, Tensor weight, Tensor threshold, Tensor flip, int[] stride, int[] padding,
//     int[] dilation, bool padding_one) -> Tensor
//   ulp::binary_linear(Tensor signs, Tensor weight, Tensor scale, Tensor? bias) -> Tensor
//   ulp::binary_linear_signs(Tensor signs, Tensor weight, Tensor threshold, Tensor flip) -> Tensor
//
// Signs and weights are +1 and -1 in f32. With s a sum of products (whole, so exact), the layers give s * scale + bias,
// each step rounded, with a scale [O] or [O, h, w]; those of signs +1 where s >= threshold[o] (i32) and -1 elsewhere,
// the other way round where flip[o] (bool). threshold_signs does the same with x and thresholds in f32 by its dimension
// `dim`.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// A convolution or linear layer on signs, whose result is numbers.
bool is_binary_layer(const graph::Node& node);
/// The same with signs as its result.
bool is_binary_signs(const graph::Node& node);
/// True for what gives signs that the engine holds as bits.
bool makes_bits(const graph::Node& node);

}  // namespace ulp::lowering
