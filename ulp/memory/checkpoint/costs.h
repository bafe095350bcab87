// Measures what the calls of a graph cost.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/memory/checkpoint/plan.h"

namespace ulp::memory {

/// Runs the forward of the module on these inputs, `runs` times after a first one, in its mode and under the
/// caller's autocast: bytes are exact, times the shortest ones. Nothing is kept for a backward. Buffers and
/// random state are as before. Throws ulp::Error for runs < 1 and for inputs that the graph does not take.
ULP_API Costs measure_costs(const graph::GraphModule& module, const std::vector<at::Tensor>& inputs,
                            int64_t runs = 2);

}  // namespace ulp::memory
