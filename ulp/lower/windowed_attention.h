// Attention with a sliding window or a soft cap as one call, for which LibTorch has none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// ulp::windowed_attention: the arguments of aten::scaled_dot_product_attention, then `window` (of the keys
/// up to its own a query sees the last so many; 0: all; is_causal alone) and `softcap` (scores become softcap
/// * tanh(score / softcap) before the mask; 0: they do not). It runs as products and a softmax.
inline constexpr const char* kWindowedAttention = "ulp::windowed_attention";

/// True for a call of aten::scaled_dot_product_attention and of the one above.
bool is_attention(const graph::Node& node);

/// Fields that only the latter has; zeros for the former.
struct WindowAndCap {
  int64_t window = 0;
  double softcap = 0;
};
WindowAndCap window_and_cap(const graph::Node& attention);

/// Windows by the name of the attention node, from masks at sizes that are larger than they are. A text no
/// longer than its window has a mask without one: what was found in longer texts makes the steps of all sizes
/// alike.
using KnownWindows = std::map<std::string, int64_t>;

/// Gives a node the arguments query to scale of attention: aten::scaled_dot_product_attention where there is
/// no window and no cap.
void make_attention(graph::Graph& graph, graph::Node& node, std::vector<graph::Argument> args,
                    const WindowAndCap& more);

}  // namespace ulp::lowering
