// Other orders of channels, heads and neurons, in which the network computes the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/prune_recipe.h"
#include "ulp/prune/scores/score.h"
#include "ulp/prune/structured/groups.h"

namespace ulp::prune {

/// Whether the group's units may change places: each has the same number of indices in each member, at the same distances.
ULP_API bool can_reorder(const Group& group);

/// Puts unit order[k] of the group at the place of unit k, in place and in every member, gradients included: rows with their biases,
/// norms, and the columns that read them. The network computes the same, but for the order of sums. `group` is one of the
/// module's graph. Throws ulp::Error for an order that does not have each unit once, for a group that can_reorder() refuses, and
/// for tensors that have masks.
ULP_API void reorder_units(graph::GraphModule& module, const Group& group, const std::vector<int64_t>& order);

/// What n:m keeps of the scores of the columns that a group's order decides on.
struct ReorderedGroup {
  std::string name;        ///< of the group
  double kept_before = 0;  ///< share of the sum of the scores, in the order that was
  double kept = 0;         ///< and in the order that is; never less
};

/// Finds for each group an order of its units in which the recipe's n:m keeps more of the scores of all the layers that read it
/// (n_m_input_order), and puts them in that order. Groups whose units are no run of whole neighbourhoods of the layers' inputs, as after
/// flattening, stay. Throws ulp::Error for a recipe of another pattern or whose scores are gathered in training, and as
/// compute_scores() and reorder_units() do.
ULP_API std::vector<ReorderedGroup> reorder_for_n_m(graph::GraphModule& module, const Recipe& recipe,
                                                    const ScoreInputs& inputs = {});

}  // namespace ulp::prune
