#include "ulp/prune/structured/removed.h"

#include <set>

#include "ulp/base/error.h"

namespace ulp::prune {

void check_removals(const Groups& groups, const Removals& removals) {
  if (removals.units.size() != groups.groups.size())
    fail("prune.cut", "expected removals for each of ", groups.groups.size(), " groups, got ",
         removals.units.size());
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    const Group& group = groups.groups[g];
    std::set<int64_t> seen;
    for (const int64_t unit : removals.units[g]) {
      if (unit < 0 || unit >= group.units)
        fail("prune.cut", "expected units below ", group.units, " of '", group.name(), "', got ", unit);
      if (!seen.insert(unit).second)
        fail("prune.cut", "expected each unit of '", group.name(), "' once, got ", unit, " twice");
    }
    if (group.units > 0 && static_cast<int64_t>(seen.size()) == group.units)
      fail("prune.cut", "expected at least one unit of '", group.name(), "' to stay, got all ", group.units,
           " removed");
  }
}

Survivors with_copies(const Tracker& tracker, const Groups& groups,
                      const std::vector<std::vector<int64_t>>& units, int copies_of_each) {
  const Axes& axes = tracker.axes();
  std::vector<uint8_t> copies(axes.size(), 1);
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    for (const int64_t unit : units[g]) {
      for (const Member& member : groups.groups[g].members) {
        const auto layout = tracker.attributes().find(member.tensor);
        if (layout == tracker.attributes().end() || member.dim >= layout->second.rank())
          fail("prune.cut", "expected the groups of this graph, got '", member.tensor, "', which it has not");
        for (const int64_t index : member.indices[unit]) {
          const Axis& axis = layout->second.dims[member.dim];
          if (index >= static_cast<int64_t>(axis.size()) || axes.fixed(axis[index]))
            fail("prune.cut", "expected the groups of this graph, got index ", index, " of '", member.tensor,
                 "', which cannot be cut");
          copies[axes.find(axis[index])] = static_cast<uint8_t>(copies_of_each);
        }
      }
    }
  }
  return Survivors(axes, std::move(copies));
}

Survivors survivors(const Tracker& tracker, const Groups& groups, const Removals& removals) {
  check_removals(groups, removals);
  return with_copies(tracker, groups, removals.units, 0);
}

}  // namespace ulp::prune
