// How far a pruning run with training has come, as its checkpoints tell: which training, of what the cuts
// before it left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/structure_file.h"

namespace ulp::app {

struct PruneProgress {
  int64_t training =
      0;  ///< 0: with the penalty, before anything is cut; n: after the nth cut, or of the masks
  prune::Structure structure = {};  ///< the cuts that were made before it
};

/// A checkpoint's description of a run by this recipe (PruneRecipe::to_json()) on this network.
ULP_API std::string describe(const PruneProgress& progress, const std::string& recipe,
                             const graph::Graph& dense);

/// What the checkpoint at `path` says. Throws FileError for one that is damaged or not of `ulp prune`, and
/// ulp::Error, naming the fields that differ, for a run by another recipe, or on another network.
ULP_API PruneProgress read_progress(const std::filesystem::path& path, const std::string& recipe,
                                    const graph::Graph& dense);

}  // namespace ulp::app
