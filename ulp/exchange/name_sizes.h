// Sizes that follow those of the inputs by no polynomial, such as that of x[:3] along the batch.
#pragma once

#include <cstdint>

#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Gives types and sizes, in place, to the values whose sizes were not seen at capture, and to those that
/// follow a cut of a free dimension, whose sizes may be others than at the few sizes of a capture. They are
/// those of runs on zeros of several sizes. A size that fits nothing known becomes a free dimension with a
/// name of its own, from the least to the largest that was seen, and with no place in an input; it is one for
/// all values that have the same size in every run. Values that differ in type or rank from run to run stay
/// as they are, and so does all where fewer than three runs succeed.
void name_sizes(graph::Graph& graph);

/// Gives such values the types and sizes that they have in a run of this batch, in place, for files whose
/// sizes are numbers. The graph has no free dimensions. Nothing changes where the run fails.
void see_sizes(graph::Graph& graph, int64_t batch);

}  // namespace ulp::exchange
