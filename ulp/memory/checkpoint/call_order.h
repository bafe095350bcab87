// The calls of a graph by their numbers in order of execution.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::memory {

/// Calls and modules of a graph, numbered from 0.
struct CallOrder {
  explicit CallOrder(const graph::Graph& graph);

  std::vector<const graph::Node*> calls;
  std::unordered_map<const graph::Node*, int64_t> number;
  int64_t size() const { return static_cast<int64_t>(calls.size()); }
  /// The number of a call; throws ulp::Error `[memory.plan] ...` for a node that is none of this graph.
  int64_t of(const graph::Node* node) const;
};

}  // namespace ulp::memory
