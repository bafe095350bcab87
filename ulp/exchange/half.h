// A float graph in half precision, for files that take half the space.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Parameters, buffers, values and the dtypes written in calls become float16 where they were float32, in place; inputs and
/// results stay as they are, with a cast behind or before them, and so do recurrent layers and batch norms with all of their tensors.
/// Throws ulp::Error for a quantized graph, and naming a tensor with a number that float16 cannot hold; `where` begins its text.
void to_half(graph::Graph& graph, const char* where);

}  // namespace ulp::exchange
