// Computing once what does not depend on the inputs.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// Nodes that read parameters, buffers and constants only (position embeddings cut to the length of the text)
/// become constants of the graph. Dequantized weights stay as they are: their integers are what an engine
/// reads.
void fold_constants(graph::Graph& graph);

}  // namespace ulp::lowering
