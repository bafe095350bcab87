// The part of canonicalize that brings convolutions to one form.
#pragma once

#include "ulp/graph/passes/pass.h"

namespace ulp::graph {

/// aten::convolution and aten::_convolution, as traced TorchScript has it, -> aten::conv1d, conv2d, conv3d or their
/// transposes, which make that very call. False for other nodes, and with a near miss in the report where the rank
/// is not known.
bool from_convolution(Graph& graph, Node& node, PassReport& report);

}  // namespace ulp::graph
