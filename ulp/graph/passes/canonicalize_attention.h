// The part of canonicalize that finds attention.
#pragma once

#include "ulp/graph/passes/pass.h"

namespace ulp::graph {

/// softmax(q k^T [+ mask]) v -> aten::scaled_dot_product_attention with scale 1. The mask's numbers are
/// known, and it leaves each query a key (may_hide_all_keys()).
void fuse_attention(Graph& graph, PassReport& report);

}  // namespace ulp::graph
