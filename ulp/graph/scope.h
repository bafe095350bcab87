// Where in the model a call was made, told from the parameters it reads.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::graph {

/// Sets the node's scope from its arguments: the module that owns the parameters it reads ("layer1.0.conv1"),
/// else the module around those whose results it reads.
void set_scope(Node& node);

}  // namespace ulp::graph
