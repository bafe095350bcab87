// The mean over the steps of texts as one operator.
#pragma once

#include "ulp/graph/passes/pass.h"

namespace ulp::lowering {

/// masked_fill(x, m, 0).sum(1) / logical_not(m).sum(1).clamp_min(1) with m = (ids == token).unsqueeze(2)
/// becomes
///   ulp::token_mean(Tensor x, Tensor ids, int token) -> Tensor
/// the mean over the steps of x [N, steps, features] whose id is another; zeros where there is none.
graph::PassReport fuse_token_mean(graph::Graph& graph);

}  // namespace ulp::lowering
