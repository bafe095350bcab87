// Attention as people write it, brought to the form that the attention step has.
#pragma once

#include "ulp/graph/graph.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/lower/windowed_attention.h"

namespace ulp::lowering {

/// softmax(scores) v becomes aten::scaled_dot_product_attention where the scores are q k^T, multiplied or
/// divided by numbers, with what comes later masked, before or after that: added to them, subtracted, filled
/// in (masked_fill), chosen (where), or multiplied by 0 and added. What comes before a sliding window may be
/// hidden as well, and scores may have a soft cap: that is ulp::windowed_attention. A mask of sizes and
/// constants alone that hides what comes later is the node's own is_causal, also where it was made for each
/// sample or head; causal attention of [N, S, depth] and [N heads, S, depth] gets a dimension of heads. A
/// mask of the keys alone is added. Masks of any other kind stay as they are written, and so do those whose
/// numbers are so small that hidden keys may have a weight. The graph's constants are folded. `windows` are
/// those of larger sizes of the graph; those of this one are added.
graph::PassReport fuse_written_attention(graph::Graph& graph, KnownWindows& windows);

/// Attention nodes that have no step of the engine's (has_attention_step) become their products and softmax.
/// Reads the sizes of all values; new values have none.
graph::PassReport write_out_attention(graph::Graph& graph);

}  // namespace ulp::lowering
