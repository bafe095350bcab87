// What removed channels leave behind a norm, moved into the biases of the layers that read them.
#pragma once

#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/remove_units.h"

namespace ulp::prune {

/// What fold_constants() did, a sentence for each call that sums over removed channels which are not zero.
struct FoldReport {
  std::vector<std::string> folded;      ///< "conv2: 3 channels"
  std::vector<std::string> not_folded;  ///< "conv2: 3 channels: its zero padding knows no constant"
};

/// A channel whose filter is zero is not zero behind a batch norm: relu(beta - gamma mean / sqrt(var + eps))
/// flows on, the same number everywhere. remove_units() drops it. This adds it to the biases of the layers
/// that read it, in place and before remove_units(), so that in eval mode the cut network computes what the
/// network does with the units' rows zeroed and their norms as they are. Layers get a bias where they have
/// none ("conv2.bias"; "w1_bias" for a weight "w1"). Exact for linear layers, addmm and convolutions, of
/// groups, too, without zero padding; through batch norm, elementwise ops, parts, joins, permutations,
/// pooling without padding, means over places and flattening. Calls that share a bias, or a weight without
/// one, get their constants only where all of them read the same ones and nothing else reads the bias. Every
/// other call that sums over removed channels or measures them, and that is not known to read zeros, is named
/// in the report and loses the constant. Throws ulp::Error as remove_units() does.
ULP_API FoldReport fold_constants(graph::GraphModule& module, const Groups& groups, const Removals& removals);

}  // namespace ulp::prune
