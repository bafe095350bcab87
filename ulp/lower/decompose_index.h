// Ops on ids that are written as others before lowering.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// embedding_bag of bags of one length becomes an embedding and a reduction; one_hot a scatter into zeros;
/// a scatter reads no more of its source than there are ids.
void spell_out_index(graph::Graph& graph);

}  // namespace ulp::lowering
