// Plans with free dimensions: lowered at several sizes, and joined where they differ in nothing but numbers
// that follow them.
#pragma once

#include <functional>

#include "ulp/graph/graph.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::lowering {

/// Lowers a graph without free dimensions.
using LowerPlain = std::function<runtime::Plan(graph::Graph&)>;

/// The plan of a graph with free dimensions. `lower` is called with copies of it at three sizes of each
/// dimension, the largest ones, from the largest on, and at one more setting that the numbers found are tried
/// at. Throws ulp::Error naming the step where something follows a dimension that cannot: a real number, a
/// choice, a constant that is no part of the one at the largest sizes.
runtime::Plan lower_free(const graph::Graph& graph, const LowerPlain& lower);

}  // namespace ulp::lowering
