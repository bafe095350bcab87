// Where removed channels end: what a call sums over or measures, and so loses when they are cut. Internal to
// the room.
#pragma once

#include <vector>

#include "ulp/prune/structured/removed_constants.h"

namespace ulp::prune {

/// Removed positions of a dimension that a call reads and does not hand on.
struct LostChannels {
  const graph::Value* value = nullptr;
  size_t dim = 0;
  std::vector<int64_t> indices;
};

/// Those of the call that hold anything but zeros; those that hold zeros, too, where the call divides by how
/// many there are. An op of a family whose ops sum over nothing (elementwise, parts, moves, views) has none.
std::vector<LostChannels> lost_channels(const graph::Node& node, const RemovedConstants& removed);

}  // namespace ulp::prune
