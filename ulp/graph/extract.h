// Cutting a part out of a graph.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

/// A part of a graph, and where its nodes come from.
struct Extract {
  std::shared_ptr<Graph> graph;
  std::unordered_map<const Node*, const Node*>
      origins;  ///< of the part's calls and modules, and of its inputs
};

/// A graph of copies of `nodes`, which stand in the order of `graph`. `inputs`, values that other nodes make, become
/// its inputs; what the nodes read beside these and each other are attributes, which are shared. The result is a list
/// of `results`. An input's batch dimension is the one whose size is the batch; sizes that follow the batch in any other
/// way are forgotten. Throws ulp::Error where a node reads what is none of these.
ULP_API Extract extract(const Graph& graph, const std::vector<const Node*>& nodes,
                        const std::vector<const Value*>& inputs, const std::vector<const Value*>& results);

}  // namespace ulp::graph
