// Ops that are written as others before lowering, so that each needs one lowering only.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// stack becomes a cat of operands with a dimension more; softmax and log_softmax over another dimension than
/// the last one over the last between two movedims; matmul with a constant matrix on the right a linear
/// layer; baddbmm a sum.
void spell_out(graph::Graph& graph);

/// Adaptive maxima of windows that divide the input are a pooling of these windows: before sequences become
/// images.
void spell_out_pools(graph::Graph& graph);

}  // namespace ulp::lowering
