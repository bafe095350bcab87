// What a graph computes of its stored tensors alone.
#pragma once

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

/// What the value holds in eval mode for every input; undefined where it follows inputs, sizes that stay
/// free, the mode or random numbers, and where the graph writes one of the tensors that it is made of.
ULP_API at::Tensor fixed_tensor(const Graph& graph, const Value& value);

/// True where a mask that is added to attention scores may be -inf for all keys of a query. softmax gives NaN
/// for such a row, and aten::scaled_dot_product_attention zeros. False for fixed masks that leave each query
/// a key.
ULP_API bool may_hide_all_keys(const Graph& graph, const Value& mask);

}  // namespace ulp::graph
