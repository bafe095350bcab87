// Sums of int8 layers, which integer kernels keep in 32 bits.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Throws ulp::Error, whose text begins with `where`, for a convolution or a linear layer from codes to codes
/// of weights, and for a product of two activations, whose sums can pass 2^31: runtimes wrap around then, or
/// stop at the largest number, without a word. It names the layer and the bound, which is the engine's: 255,
/// the largest code, times the sum of the weights' absolute values, and the bias.
void check_integer_sums(const graph::Graph& graph, const char* where);

}  // namespace ulp::exchange
