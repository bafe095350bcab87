// Buffers that a graph itself writes: they change from run to run and are no constants.
#pragma once

#include <string>
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
  bool is_state(const graph::Value& value) const;
  std::unordered_set<std::string> names_;  ///< of attributes
};

}  // namespace ulp::lowering
