// Buffers that a graph itself writes: they change from run to run and are no constants.
#pragma once

#include <unordered_set>

#include "ulp/graph/graph.h"

namespace ulp::lowering {

class WrittenState {
 public:
  explicit WrittenState(const graph::Graph& graph);
  /// True for a node that writes such a buffer, or reads one or what is computed from it and other attributes alone: a
  /// view of it, for one.
  bool touches(const graph::Node& node) const;

 private:
  /// Attributes that are written, and what is computed from them and other attributes alone.
  std::unordered_set<const graph::Value*> state_;
};

}  // namespace ulp::lowering
