// Networks that keep time before the batch, as LibTorch's own Transformer does.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// The engine's tensors have the batch first, alone or with rows of each item behind it in the same
/// dimension. Where an op that treats all rows alike reads [time, batch, ...], or dimensions that are several
/// times the batch ([batch * heads, ...]), it becomes the same op over [batch, time, ...] or [batch, heads,
/// ...] between two views. The views between two such ops fall away. Reads the sizes of all values; true
/// where it changed something, after which new values have none.
bool put_batch_first(graph::Graph& graph);

}  // namespace ulp::lowering
