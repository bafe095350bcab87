// How the split of a value goes through the calls of a graph, and how the calls change for it; internal to the room.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ulp/distributed/split.h"
#include "ulp/graph/graph.h"

namespace ulp::distributed {

/// Values of which each rank has a part, and what has to be done to the calls that compute with the parts.
struct SplitFlow {
  graph::Graph& graph;
  int rank = 0, ranks = 1;
  std::map<const graph::Value*, Split> splits = {};
  std::vector<std::function<void()>> edits = {};

  const Split* of(const graph::Argument& argument) const;
  /// The size that an expression of the whole has on this rank.
  int64_t own(int64_t whole, const Split& split) const;
};

/// Gives the results of a call that reads split values their splits, and notes the edits. Empty where that is done, else
/// why the call cannot compute with parts.
std::string follow(SplitFlow& flow, graph::Node& node);

/// Whether there is a rule for the op.
bool can_follow(const graph::Node& node);

/// The call draws random numbers in training.
bool draws_random_numbers(const graph::Node& node);

/// Sizes seen at capture, the batch being a large prime number.
std::vector<int64_t> sizes_of(const graph::Value* value);

}  // namespace ulp::distributed
