// Inputs for runs that read no number of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

/// Zeros for each input, for the smallest batch from one sample on and the smallest size of each free
/// dimension; nothing where the sizes of an input are not known.
ULP_API std::optional<std::vector<at::Tensor>> smallest_inputs(const Graph& graph);

}  // namespace ulp::graph
