// Which units cannot be copied, and why: what adds up over them would count them twice. Internal to the room.
#pragma once

#include <map>
#include <string>

#include "ulp/prune/structured/tracker.h"

namespace ulp::prune {

/// Of each free class of positions that cannot be copied, why. The copies' columns are zeros (Role::column):
/// a sum over a class is what it was where one of its factors is 0 for the copies, and a dimension that only
/// one class is in may be repeated along others.
std::map<Position, std::string> not_copied(const graph::Graph& graph, const Tracker& tracker);

}  // namespace ulp::prune
