// The random states of all ranks, for a checkpoint that one of them writes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/distributed/process_group.h"

namespace ulp::distributed {

/// The state of the default CPU generator of each rank but 0 as "random.cpu.<rank>", uint8; the same on every
/// rank. All ranks call it.
ULP_API std::vector<std::pair<std::string, at::Tensor>> random_states(ProcessGroup& group);

/// Gives the generator of this rank its state of random_states() back. Rank 0 is left alone; so is a rank
/// that was not there when they were saved, but for a seed of its own that follows from the state that its
/// generator has. Throws ulp::FileError for a state that is none.
ULP_API void restore_random_state(const ProcessGroup& group,
                                  const std::vector<std::pair<std::string, at::Tensor>>& states);

}  // namespace ulp::distributed
