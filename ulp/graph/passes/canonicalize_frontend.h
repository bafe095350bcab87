// Calls of the C++ frontend that Python writes with other operators. Part of canonicalize.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::graph {

/// A call that torch::nn and the operators of at::Tensor make -> what Python and torch.export write for it:
/// - `1.0 - x` and `1.0 / x` (empty_like and fill) -> the operator with a constant of no dimensions;
/// - zero -> fill; _pad_enum -> pad; norm -> linalg_vector_norm;
/// - scalar_tensor of a number -> a constant.
/// The results have the same bits. Returns what it made; null where the call is another one. The node may be
/// gone then.
const char* from_frontend(Graph& graph, Node& node);

/// clamp between tensors of one type -> maximum and minimum, whose gradients are others: for graphs that infer, part
/// of strip_training. Returns what it made, or null.
const char* clamp_by_bounds(Graph& graph, Node& node);

}  // namespace ulp::graph
