// Sizes of a network under many removals; everything that is asked more than once is kept. Internal to the room.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/prune/structured/select.h"
#include "ulp/prune/structured/tracker.h"

namespace ulp::prune {

/// size_after() of one graph, again and again. The graph and the groups must outlive it.
class SizeCounter {
 public:
  SizeCounter(const graph::Graph& graph, const Groups& groups);
  ModelSize operator()(const Removals& removals) const;

 private:
  const graph::Graph& graph_;
  const Groups& groups_;
  Tracker tracker_;
  std::vector<int64_t> item_;
};

}  // namespace ulp::prune
