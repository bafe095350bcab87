// How wide a unit is. Internal to the room.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ulp/prune/structured/groups.h"

namespace ulp::prune {

/// Channels of a unit in the narrowest place that it is cut.
inline int64_t unit_width(const Group& group) {
  int64_t width = 0;
  for (const Member& member : group.members) {
    const auto count = static_cast<int64_t>(member.indices.at(0).size());
    width = width == 0 ? count : std::min(width, count);
  }
  return std::max<int64_t>(width, 1);
}

}  // namespace ulp::prune
