// Checkpoints in shares: each rank writes the state of its own pieces, at the same time as the others.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/base/export.h"
#include "ulp/distributed/sharded_optimizer.h"

namespace ulp::distributed {

/// Writes this rank's share of the optimizer's state to a file of its own beside `path`, atomically, and
/// returns the names of all ranks' files. They are there on disk when it returns. Files of another `step` are
/// left alone: the checkpoint at `path` names those of its own step, so it must be written after this and
/// before remove_other_shards(). All ranks call it.
ULP_API std::vector<std::string> save_shards(const ShardedOptimizer& optimizer,
                                             const std::filesystem::path& path, int64_t step);

/// Removes the files beside `path` that save_shards() wrote at other steps or for other numbers of ranks. One
/// rank calls it.
ULP_API void remove_other_shards(const std::filesystem::path& path, const std::vector<std::string>& kept);

/// Fills in the state of an optimizer of whole parameters from the files beside `path`, one after the other.
/// Throws FileError for a file that is missing, damaged or of another model, and where they leave elements
/// out.
ULP_API void load_shards(amp::FusedOptimizer& optimizer, const std::filesystem::path& path,
                         const std::vector<std::string>& files);
/// Loads this rank's pieces, whatever the number of ranks was that wrote them.
ULP_API void load_shards(ShardedOptimizer& optimizer, const std::filesystem::path& path,
                         const std::vector<std::string>& files);

}  // namespace ulp::distributed
