// From units that are to go to what is left of each axis. Internal to the room.
#pragma once

#include "ulp/prune/structured/cut.h"
#include "ulp/prune/structured/tracker.h"

namespace ulp::prune {

/// Throws ulp::Error for removals that the groups do not have, and where no unit of a group is left.
void check_removals(const Groups& groups, const Removals& removals);

/// After check_removals(); throws ulp::Error for groups that are not the tracker's.
Survivors survivors(const Tracker& tracker, const Groups& groups, const Removals& removals);

}  // namespace ulp::prune
