// Cuts a share of the channels, heads and neurons of each group in one call.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/groups.h"
#include "ulp/prune/structured/importance.h"
#include "ulp/prune/structured/remove_units.h"
#include "ulp/prune/structured/select.h"
#include "ulp/prune/structured/shapley.h"
#include "ulp/prune/structured/squared_gradients.h"

namespace ulp::prune {

/// What prune_channels() cuts.
struct ULP_API ChannelOptions {
  double share =
      0.5;  ///< of the units of each group that goes, in [0, 1): rounded half to even, one unit stays
  Criterion criterion = Criterion::l1;  ///< what makes a unit worth keeping: the units that score least go
  /// Paths of modules whose channels all stay ("head", "blocks.0.attention"; a parent stands for all in it, '*' is any run of
  /// characters), with all that is cut together with them.
  std::vector<std::string> keep = {};
  int64_t multiple = 1;  ///< what is left is a multiple of so many channels: more is kept, up to all
  bool inexact = false;  ///< through layer norm and its like, too, whose results then change (GroupOptions)
  uint64_t seed = 0;     ///< Criterion::random

  /// Criterion::apoz, activation, rank and shapley: what the module runs on, each a list of its inputs.
  std::vector<std::vector<at::Tensor>> batches = {};
  ShapleyLoss loss = {};                                ///< Criterion::shapley
  ShapleyOptions shapley = {};                          ///< Criterion::shapley
  const SquaredGradients* squared_gradients = nullptr;  ///< Criterion::hessian, of this module

  /// Throws ulp::Error naming the option.
  void validate() const;
};

/// A group before and after.
struct GroupRemoval {
  std::string name;        ///< Group::name()
  int64_t before = 0;      ///< units: channels, heads or neurons
  int64_t after = 0;       ///< units that are left
  std::string whole = {};  ///< why nothing of it may go; empty where something may
};

/// A smaller network and what was cut of the one that it comes from.
struct ULP_API PrunedChannels {
  std::shared_ptr<graph::GraphModule> module;
  std::vector<GroupRemoval> cut;  ///< of each group, in the order of `groups`
  ModelSize before, after;        ///< parameters, multiplications for one item of the batch, bytes
  Kept kept;  ///< indices that are left of each tensor, for remove_from_optimizer() and structure_to_json()
  Groups groups;      ///< of the network before, with the layers that cannot be cut and why
  Removals removals;  ///< the units that went
};

/// A copy of the module without the least important `share` of the units of each group. It is what groups(), importance(),
/// select_units() with UnitScope::local, and remove_units() make: the copy computes what the module does with these units zeroed
/// (zero_units()), for groups without notes. A share so small that it rounds to no unit of any group cuts nothing. The module
/// stays as it is, also where this throws.
///
/// Throws ulp::Error for options out of range; for a name of `keep` that no module of the graph has; where nothing can be cut,
/// with the layers and why; for a criterion whose batches, loss, gradients or squared gradients are not given; and as
/// importance(), activation_importance() and shapley_values() do.
ULP_API PrunedChannels prune_channels(const graph::GraphModule& module, const ChannelOptions& options = {});

/// A table of the groups, the sizes before and after, and the layers that were not cut and why.
ULP_API std::ostream& operator<<(std::ostream& out, const PrunedChannels& pruned);

}  // namespace ulp::prune
