// Ops that are written as others before lowering, so that each needs one lowering only.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// stack becomes a cat of operands with a dimension more.
void spell_out(graph::Graph& graph);

}  // namespace ulp::lowering
