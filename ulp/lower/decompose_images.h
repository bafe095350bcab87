// Ops on images that are written as others before lowering.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// What becomes a layer that other passes change: before them. Adaptive pooling becomes pooling of windows, a
/// product for each dimension or, where maxima of windows of several sizes are asked for, pooling of their
/// elements; a divisor of one's own a factor; im2col moves; col2im a transposed convolution; an affine grid a
/// product.
void spell_out_images(graph::Graph& graph);

}  // namespace ulp::lowering
