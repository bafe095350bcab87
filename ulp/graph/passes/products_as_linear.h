// Layers that store their weight as [in, out], as GPT-2's published code does.
#pragma once

#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::graph {

/// x W + b with a stored matrix W [in, out] (addmm; matmul or mm, with or without a bias behind it) -> linear with the transpose of W, which
/// store_transposes() then stores. Sums may be in another order. After canonicalize().
ULP_API PassReport products_as_linear(Graph& graph);

}  // namespace ulp::graph
