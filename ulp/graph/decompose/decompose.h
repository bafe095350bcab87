// Calls that neither the engine nor any format of files has, as calls that all of them have. One place for
// all of them: what is written here has a form everywhere, with LibTorch's numbers.
#pragma once

#include <functional>

#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::graph {

/// Writes calls of `wanted` in core ops, for graphs that will only ever infer: orders (median, kthvalue,
/// cummax, logcumsumexp, var_mean, aminmax), functions (hypot, copysign, heaviside, signbit, bucketize,
/// searchsorted), moves (diag_embed, diagonal, rot90, unfold, index_fill, index_add, index_copy,
/// slice_scatter, select_scatter), products (mv, addmv, addbmm, addr, cross), windows (places of the largest
/// elements, max_unpool) and others: the tables beside this file. Places of max pools, indices of several
/// dimensions and calls on complex numbers, Fourier transforms among them, are written whatever `wanted`
/// says. Every value has known sizes before and after. A call stays as it is, and is a near miss, where sizes
/// or places are not constant and must be, where they follow a buffer that the graph writes, and under
/// autocast of the model's own.
ULP_API PassReport decompose(Graph& graph, const std::function<bool(const Node&)>& wanted);

}  // namespace ulp::graph
