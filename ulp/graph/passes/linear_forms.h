// Products that are linear layers in other words. What passes share that find them.
#pragma once

#include "ulp/graph/passes/pass.h"

namespace ulp::graph {

/// The weight [out, in] of a product whose second factor is this argument, or null; it may add nodes before the product.
using WeightOf = Value* (*)(Graph& graph, const Argument& factor, Node* product);

/// The 2-d value that the factor is the transpose of, or null.
Value* transposed(Graph& graph, const Argument& factor, Node* product);

/// addmm with a bias -> linear: the very calls that aten::linear makes. True where the node was rewritten; near misses are reported.
bool from_addmm(Graph& graph, Node& node, WeightOf weight_of, PassReport& report);

/// matmul or mm, and the addition of a bias behind it -> linear. Likewise; the node may be gone then.
bool from_matmul(Graph& graph, Node& node, WeightOf weight_of, PassReport& report);

/// weight.matmul(rows.t()), of a weight that forward has and two dimensions, -> the transpose of linear(rows,
/// weight). Likewise.
bool from_left_weight(Graph& graph, Node& node);

}  // namespace ulp::graph
