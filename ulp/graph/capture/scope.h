// Where in the model a call was made, told from the parameters it reads.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::graph {

/// The path without its last component: "layer1.0" for "layer1.0.conv1", "" for "conv1".
std::string parent_path(const std::string& path);

/// The longest path of whole components that all of them start with; "" for none.
std::string common_path(const std::vector<std::string>& paths);

/// Sets the node's scope from its arguments: the module that owns the parameters it reads ("layer1.0.conv1"),
/// else the module around those whose results it reads.
void set_scope(Node& node);

}  // namespace ulp::graph
