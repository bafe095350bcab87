// The spellings around scaled_dot_product_attention: heads that are split from rows and joined again, masks.
#pragma once

#include <optional>

#include "ulp/graph/graph.h"

namespace ulp::lowering {

inline constexpr const char* kAttention = "aten::scaled_dot_product_attention";

/// [N, heads, S, depth] -> transpose -> [N, S, heads, depth] -> reshape -> [N, S, heads * depth].
struct JoinedHeads {
  const graph::Node* transpose;
  const graph::Node* reshape;
};
/// What follows an attention node, when nothing else reads its result.
std::optional<JoinedHeads> joined_heads(const graph::Graph& graph, const graph::Node& attention);

/// True for an attention node that the engine's step does as it is: [N, heads, S, depth] on both sides, as many heads in
/// keys as in queries or, with enable_gqa and no mask, a divisor of them, and a mask of the keys or none.
bool has_attention_step(const graph::Node& attention);

/// True when the value ends in attention nodes only, by way of transposes, reshapes and broadcasts.
bool feeds_attention(const graph::Graph& graph, const graph::Value* value);

}  // namespace ulp::lowering
