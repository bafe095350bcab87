// Ops that are written as others before lowering, so that each needs one lowering only.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// stack becomes a cat of operands with a dimension more; softmax and log_softmax over another dimension than
/// the last one over the last between two movedims; matmul with a constant matrix on the right a linear
/// layer; addmm one, too, or a sum; rms_norm, cosine_similarity and cdist what their formulas say; cells
/// of users' loops their gates; new_zeros and its likes what they are without x.
void spell_out(graph::Graph& graph);

}  // namespace ulp::lowering
