// Buffers that a graph itself writes: they change from run to run and are no constants.
#pragma once

#include <unordered_set>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

class ULP_API WrittenState {
 public:
  explicit WrittenState(const Graph& graph);
  /// True for a node that writes such a buffer, or reads one or what is computed from it and other attributes
  /// alone: a view of it, for one.
  bool touches(const Node& node) const;
  /// True for such a buffer and for what is computed from one and other attributes alone.
  bool holds(const Value* value) const { return state_.contains(value); }

 private:
  /// Attributes that are written, and what is computed from them and other attributes alone.
  std::unordered_set<const Value*> state_;
};

}  // namespace ulp::graph
