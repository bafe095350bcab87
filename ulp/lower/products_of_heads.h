// Batches of matrix products as einsum makes them, brought to the form of matmul over heads.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// A product [groups, m, k] [groups, k, n] whose sides are [N, heads, ...] in any order of dimensions, which
/// views have laid out, becomes aten::matmul over [N, heads, m, k] and [N, heads, k, n]; its result is read
/// in that form, too, and what scales, masks or weighs its elements works in that form. Reads and gives the
/// sizes of all values.
void products_over_heads(graph::Graph& graph);

}  // namespace ulp::lowering
