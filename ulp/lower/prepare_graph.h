// What happens to every graph before it is lowered.
#pragma once

#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/lower/windowed_attention.h"

namespace ulp::lowering {

/// Brings the graph into the form that has a lowering, step by step; it still runs. The passes run on
/// prepared graphs, too: what only training needed is gone now, and that lets canonicalize match more than
/// before. `windows` are those of larger sizes of the graph, as fuse_written_attention() has them.
void prepare_graph(graph::Graph& graph, std::vector<graph::PassReport>& reports, KnownWindows& windows);

}  // namespace ulp::lowering
