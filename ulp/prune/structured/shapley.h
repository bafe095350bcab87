// How much each unit matters by its Shapley value: what the loss grows by when it goes, averaged over what went before it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/importance.h"

namespace ulp::prune {

/// How Shapley values are sampled.
struct ULP_API ShapleyOptions {
  /// Orders in which the units of a group go, at most. A group of which there are not more orders goes through each once: its
  /// values are exact.
  int64_t permutations = 5;
  /// A group is done, after three orders, when the 95 % intervals of all its values reach at most this share of its largest
  /// |value| to either side; 0: never before `permutations`.
  double interval = 0;
  uint64_t seed = 0;  ///< of the orders
  /// Throws ulp::Error naming the field.
  void validate() const;
};

/// Shapley values with their uncertainty.
struct ULP_API ShapleyValues {
  Importance values;  ///< mean growth of the loss; below 0 for units without which it is smaller
  Importance
      standard_errors;  ///< of each mean: s / sqrt(orders); infinite after one order, 0 where the value is exact
  std::vector<int64_t> permutations;  ///< orders of each group
  std::vector<int64_t> nodes;         ///< that a pass of each group runs: calls and modules behind it
  int64_t passes = 0;                 ///< runs of these parts, each on one batch

  /// Half of the 95 % interval of a value: the standard error times Student's t of permutations - 1 degrees of freedom.
  double half_width(size_t group, size_t unit) const;
};

/// The mean loss of batch `batch` from what the model gives for it: its tensors in order (GraphModule::forward_all).
using ShapleyLoss = std::function<double(const std::vector<at::Tensor>& results, int64_t batch)>;

/// Shapley values of the units of each group (Ancona, Oeztireli and Gross 2020, "Shapley Value as Principled Metric for
/// Structured Network Pruning"): from the whole network the units of one group are zeroed one after the other in random order, as zero_units()
/// does, and the value of a unit is the mean of what the loss grows by with it; losses are averaged over the batches (each a list of
/// inputs), weighted by their items. The values of a group sum up to the loss without all its units minus that of the whole network.
/// What does not depend on the group is computed once a batch, and the part of the graph behind it once for each unit, order and batch. Runs in
/// eval mode, without gradients; the module is left as it was. Throws ulp::Error for options out of range, without
/// batches, for a loss that is no number, for groups of another graph, and as GraphModule::run() does.
ULP_API ShapleyValues shapley_values(const graph::GraphModule& module, const Groups& groups,
                                     const std::vector<std::vector<at::Tensor>>& batches,
                                     const ShapleyLoss& loss, const ShapleyOptions& options = {});

}  // namespace ulp::prune
