// The mask of attention that hides keys of a sample and, perhaps, what comes later: one tensor for LibTorch,
// a part of the attention step for the engine.
#pragma once

#include "ulp/graph/graph.h"
#include "ulp/runtime/ops/attention_op.h"

namespace ulp::lowering {

/// ulp::attention_mask(Tensor keys, int queries, bool causal, int blind): what is added to the scores [N,
/// heads, queries, keys]. `keys` [N, 1, 1, keys] is added for every query; later keys are hidden where it is
/// causal; `blind` is a runtime::BlindQueries: what a query gets that sees no key, where `keys` is 0 or
/// -infinity.
inline constexpr const char* kAttentionMask = "ulp::attention_mask";

/// A call of it before `node`, of the same module.
graph::Value* attention_mask(graph::Graph& graph, const graph::Argument& keys, int64_t queries, bool causal,
                             runtime::BlindQueries blind, graph::Node& node);

/// The call that makes the mask of an attention node; null for other masks and none.
const graph::Node* attention_mask_of(const graph::Node& attention);

}  // namespace ulp::lowering
