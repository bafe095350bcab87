// Chains of ops that work on each channel by itself and end in a sign, and what signs they give.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// Ops one after the other: each reads the result of the one before and constants of a channel or of all, and nobody
/// else reads these results. The last one is ulp::binarize.
struct ChannelChain {
  const graph::Value* start = nullptr;
  int64_t dim = 1;  ///< the channels' dimension of all values
  std::vector<const graph::Node*> nodes;
  const graph::Node* binarize() const { return nodes.back(); }
};

/// The chain that begins with the readers of `start`; without nodes, and with `why`, where there is none.
ULP_API ChannelChain chain_from(const graph::Graph& graph, const graph::Value* start, int64_t dim,
                                std::string& why);
/// The longest chain that ends in this ulp::binarize whose ops are known to keep the order of real numbers, or turn
/// it, in each channel: sums, products, batch norms, clamps, prelu of slopes that are not negative.
ULP_API ChannelChain ordered_chain_to(const graph::Graph& graph, const graph::Node* binarize);

/// The signs that the graph's own arithmetic gives for numbers in the place of chain.start: bool [numbers, channels],
/// true for +1. `numbers`: f32 [numbers, channels]; they are laid out as the values of the graph are, in NCHW and in
/// NHWC order. Undefined where the two orders differ.
ULP_API at::Tensor signs_of(const graph::Graph& graph, const ChannelChain& chain, const at::Tensor& numbers);

}  // namespace ulp::lowering
