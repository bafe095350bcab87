// view + transpose + view over the channels -> aten::channel_shuffle; a part of canonicalize().
#pragma once

#include "ulp/graph/passes/pass.h"

namespace ulp::graph {

/// Rewrites every shuffle that is spelled with reshapes of any kind; adds to the report.
void fuse_channel_shuffle(Graph& graph, PassReport& report);

}  // namespace ulp::graph
