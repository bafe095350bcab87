// Adds units to a network and replaces single ones: the opposite of a cut, by index.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/groups.h"

namespace ulp::prune {

/// Whether copies of the group's units can be inserted: each has one index in each tensor, so no heads of
/// attention, units of recurrent layers, shuffles and channels that are flattened with their places; and
/// Group::not_copied is empty: products with weights whose columns can be zeros are all that adds up over
/// them.
ULP_API bool can_insert(const Group& group);

/// A copy of the module with more channels and neurons. `units`: for each group the units that get a copy
/// behind them, each once. A copy has the rows, biases and norms of its unit; the columns that read it are
/// zeros, so that the network computes the same for groups without notes, and the copy can be given weights
/// of its own (replace_unit()). New parameters are under the same names, with literal sizes in line, as
/// remove_units() has it. Throws ulp::Error, naming the group, for groups that are not the module's, for
/// units that there are not or that are given twice, and where can_insert() refuses the group.
ULP_API std::shared_ptr<graph::GraphModule> insert_units(const graph::GraphModule& module,
                                                         const Groups& groups,
                                                         const std::vector<std::vector<int64_t>>& units);

/// Puts the slices of unit `from` of another module's group in the place of those of `unit`, in place and in every member: rows,
/// norms and the columns that read it. The modules may be one. Throws ulp::Error, before anything is changed, naming the tensor,
/// for units that there are not and members that differ in name or size.
ULP_API void replace_unit(graph::GraphModule& module, const Group& group, int64_t unit,
                          const graph::GraphModule& other, const Group& other_group, int64_t from);

}  // namespace ulp::prune
