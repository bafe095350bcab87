// The sizes that free dimensions have in examples of a graph's inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// One size for each free dimension of the graph. Throws ulp::Error, whose text begins with `where`, for an
/// example that is missing or has no such dimension.
std::vector<int64_t> example_sizes(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                   const char* where);

}  // namespace ulp::lowering
