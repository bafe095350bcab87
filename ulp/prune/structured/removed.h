// From units that are to go to what is left of each axis. Internal to the room.
#pragma once

#include "ulp/prune/structured/remove_units.h"
#include "ulp/prune/structured/tracker.h"

namespace ulp::prune {

/// Throws ulp::Error for removals that the groups do not have, and where no unit of a group is left.
void check_removals(const Groups& groups, const Removals& removals);

/// What there is where each of these units, of each group, is there so often; all others once. Throws ulp::Error for groups that are not
/// the tracker's.
Survivors with_copies(const Tracker& tracker, const Groups& groups,
                      const std::vector<std::vector<int64_t>>& units, int copies_of_each);

/// A copy of the module with what is left, or there.
RemovalResult rebuilt(const graph::GraphModule& module, const Tracker& tracker, const Survivors& left);

/// After check_removals(); throws ulp::Error for groups that are not the tracker's.
Survivors survivors(const Tracker& tracker, const Groups& groups, const Removals& removals);

}  // namespace ulp::prune
