// Heads of keys and values that several heads of queries share, taken once (grouped-query attention).
#pragma once

#include "ulp/graph/graph.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::lowering {

/// Attention whose keys and values are heads that were repeated side by side (expand and reshape,
/// repeat_interleave) reads those heads themselves. Reads the sizes of all values.
graph::PassReport share_heads(graph::Graph& graph);

}  // namespace ulp::lowering
