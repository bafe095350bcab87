// Modules that stay in float, by name. Internal.
#pragma once

#include <string>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::quant {

/// Throws ulp::Error as `where` for a pattern that matches no module of the graph.
void check_skip_patterns(const char* where, const graph::Graph& graph,
                         const std::vector<std::string>& patterns);
/// True if a pattern matches the node's module or a parent of it.
bool is_skipped(const graph::Node& node, const std::vector<std::string>& patterns);

}  // namespace ulp::quant
