// Takes channels, heads and neurons out of a network: a smaller network with the same names.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/groups.h"

namespace torch::optim {
class Optimizer;
}

namespace ulp::prune {

/// Units to remove of each group, by their numbers, in any order, each once.
struct Removals {
  std::vector<std::vector<int64_t>> units;  ///< as many lists as there are groups
};

/// Of each tensor of the graph and each of its dimensions: the indices that were kept, rising.
using Kept = std::map<std::string, std::vector<std::vector<int64_t>>>;

/// A cut network and what was kept of the one it comes from.
struct RemovalResult {
  std::shared_ptr<graph::GraphModule> module;
  Kept kept;
};

/// A copy of the module without the units: new, smaller parameters, buffers and constants under the same names (what is not cut
/// is copied, too), with literal sizes, numbers of groups and heads, and sizes of splits in line, in the mode of the module.
/// Gradients that are there are cut along. The network computes what zero_units() makes of the old one, at every batch size, for
/// groups without notes.
///
/// `groups` are those of the module's graph. Throws ulp::Error, naming the group, for groups that are not, for a unit that
/// there is not, a unit given twice, and where no unit of a group, or nothing of a tensor on the way, would be left.
ULP_API RemovalResult remove_units(const graph::GraphModule& module, const Groups& groups,
                                   const Removals& removals);

/// Zeroes the units' slices in place: weights, biases, scales and shifts of norms, running means. Of running
/// variances and constants nothing is changed. Throws ulp::Error as remove_units() does for units that there
/// are not.
ULP_API void zero_units(graph::GraphModule& module, const Groups& groups, const Removals& removals);

/// The units of groups which have one of these indices in a dimension of a tensor: channels by hand, as
/// keras-surgeon's delete_channels. Throws ulp::Error, naming the tensor, for an index that is in no group
/// and says why it is not.
ULP_API Removals removals_of(const Groups& groups, const std::string& tensor, int64_t dim,
                             const std::vector<int64_t>& indices);

/// Puts the cut module's parameters in the place of the old ones in all groups of the optimizer, and cuts
/// momentum, moments, master weights and masks along, so that the next step is that of the zeroed network.
/// Known: ulp::amp::FusedOptimizer and LibTorch's SGD, Adam, AdamW, RMSprop and Adagrad; throws ulp::Error
/// for state of another kind, for a parameter of the optimizer that is not one of the old module, and where a
/// tensor of the state has not its parameter's sizes; nothing is changed then.
ULP_API void remove_from_optimizer(torch::optim::Optimizer& optimizer, const Kept& kept,
                                   const graph::GraphModule& old_module,
                                   const graph::GraphModule& new_module);

}  // namespace ulp::prune
