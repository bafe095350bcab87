// Arithmetic element by element: which nodes become one pointwise step, and how the step is written.
#pragma once

#include <unordered_set>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// True for a node that a function of the pointwise step, or several, can do.
bool is_pointwise(const graph::Node& node);

/// Nodes that one pointwise step can do together, in order of execution. All but the last are read by others of the
/// region only, and all results have the sizes of the last one's.
struct PointwiseRegion {
  std::vector<const graph::Node*> nodes;
};

/// The regions of a graph, as large as the limits of a step allow. Nodes that are `taken` belong to other steps.
std::vector<PointwiseRegion> pointwise_regions(const graph::Graph& graph,
                                               const std::unordered_set<const graph::Node*>& taken);

}  // namespace ulp::lowering
