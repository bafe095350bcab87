// Which dimension of a weight is its outputs. Internal.
#pragma once

#include <string>

#include "ulp/graph/graph.h"

namespace ulp::prune {

/// Whether the weight's first dimension is what the layer reads: transposed convolutions, and matrices that something is multiplied
/// with from the left, as GPT-2 has them.
bool has_inputs_first(const graph::Graph& graph, const std::string& parameter);

/// The tensor with its outputs first, or, of such a one, as it was; an undefined one stays undefined.
at::Tensor outputs_first(const at::Tensor& tensor, bool inputs_first);

}  // namespace ulp::prune
