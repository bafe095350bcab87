// Attention as people write it, brought to the form that the attention step has.
#pragma once

#include "ulp/graph/graph.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::lowering {

/// softmax(scores) v becomes aten::scaled_dot_product_attention where the scores are q k^T, multiplied or divided by a
/// number, with what comes later masked: added to them, filled in (masked_fill) or chosen (where). A constant mask that
/// hides what comes later is the node's own is_causal; a mask of the keys alone is added. Masks of any other kind stay
/// as they are written. The graph's constants are folded.
graph::PassReport fuse_written_attention(graph::Graph& graph);

/// Attention nodes that have no step of the engine's (has_attention_step) become their products and softmax. Reads the
/// sizes of all values; new values have none.
graph::PassReport write_out_attention(graph::Graph& graph);

}  // namespace ulp::lowering
