// Ops that LibTorch's public ones call, where a model says them itself. Part of canonicalize.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::graph {

/// native_layer_norm, native_group_norm, batch norms by given statistics, dropout that is off, max_pool2d_with_indices
/// and its like for 3 dimensions -> the public op that makes this very call. Returns its name; null where a further result is read or
/// there is no such op.
const char* from_inner(Graph& graph, Node& node);

}  // namespace ulp::graph
