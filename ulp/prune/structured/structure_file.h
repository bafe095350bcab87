// What was cut of a network as JSON, so that the same cuts can be made of the same model again.
#pragma once

#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/remove_units.h"

namespace ulp::prune {

/// The cuts that made a network of another, one after the other.
struct Structure {
  bool inexact = false;  ///< GroupOptions::inexact of the groups that were cut
  std::vector<Kept> cuts =
      {};  ///< of each cut what it kept of what the one before left; none: nothing was cut
  bool operator==(const Structure&) const = default;
};

/// {"type": "ulp.prune.Structure", "version": 1, "inexact": false, "cuts": [{"conv1.weight": {"sizes": [8, 3, 3, 3], "kept": {"0":
/// [0, 2, 5]}}, ...}, ...]}: for each cut every tensor of the network before it, with the dimensions of which something went. `graph`
/// is the network before the first cut. Throws ulp::Error, naming the tensor, for a structure that is not of this graph.
ULP_API std::string structure_to_json(const Structure& structure, const graph::Graph& graph);
/// Throws FileError for other text, a newer version, and indices that are not rising or outside their dimension; and for a structure of
/// another model, naming the tensor that one has and the other has not, or has in other sizes.
ULP_API Structure structure_from_json(const std::string& text, const graph::Graph& graph);

/// {"type": "ulp.prune.Removals", "version": 1, "groups": [{"name": "conv1", "units": 8, "removed": [1, 3]}, ...]}. Throws ulp::Error
/// for removals that the groups do not have.
ULP_API std::string removals_to_json(const Removals& removals, const Groups& groups);
/// Throws FileError for other text, a newer version and units that there are not, and for groups of another model, naming the group.
ULP_API Removals removals_from_json(const std::string& text, const Groups& groups);

/// The units that are gone in what one cut kept. Throws ulp::Error, naming the tensor, where only a part of a unit is.
ULP_API Removals removals_of(const Groups& groups, const Kept& kept);

/// Makes the cuts again, each with the groups of what the one before left; `kept` is what all of them keep of
/// `module`. Without cuts a copy. Throws ulp::Error as removals_of() and remove_units() do, and, naming the
/// tensor, for what no cut of this model leaves.
ULP_API RemovalResult prune_to_structure(const graph::GraphModule& module, const Structure& structure);

/// What two cuts in a row keep of the first network. Throws ulp::Error, naming the tensor, where `second` is not of what `first`
/// left.
ULP_API Kept compose(const Kept& first, const Kept& second);

}  // namespace ulp::prune
