// Why sums, activations and poolings are no part of the chain whose result they read. Internal.
#pragma once

#include <string>
#include <vector>

#include "ulp/graph/fusion/chain.h"

namespace ulp::graph {

/// Why neither a layer nor the room itself takes this node as a sum; empty: it does.
std::string add_refusal(const FusionPolicy& policy, const Node& add);
/// The same for a sum behind the layer that gives `result`.
std::string residual_refusal(const Graph& graph, const FusionPolicy& policy, const Node& add,
                             const Value* result);

/// One for each such node and each chain whose result it reads, with both names and the reason.
std::vector<NearMiss> near_misses(const Graph& graph, const FusionPolicy& policy,
                                  const std::vector<Chain>& chains);

}  // namespace ulp::graph
