// At which sizes, far from the examples', a graph is held against its model.
#pragma once

#include <vector>

#include "ulp/graph/capture/builder.h"
#include "ulp/graph/capture/sizes.h"

namespace ulp::graph {

/// Sizes of a run, the batch first.
struct FarPoint {
  std::vector<int64_t> sizes;
  bool small = false;  ///< the run is cheap, whatever the examples' cost
};

/// Of each list one point is to be run, the first that the model can take: one sample; many samples; half of
/// these, a power of two; some numbers between, where that costs next to nothing; the free dimensions at
/// their smallest, halfway from there to the examples', and at their largest or as near to it as a run is not
/// much dearer than those at the examples' sizes. Sizes that `runs` has seen are left out.
std::vector<std::vector<FarPoint>> far_points(const Subject& subject, const OpenSizes& open,
                                              const Runs& runs);

}  // namespace ulp::graph
