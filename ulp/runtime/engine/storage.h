// Decides which tensors share one piece of memory, and who owns it: the caller's buffers or the arena.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/runtime/plan/plan.h"
#include "ulp/runtime/plan/step_range.h"

namespace ulp::runtime {

/// One piece of memory and the tensors in it. Sizes are per batch item, or in all for a fixed first
/// dimension.
struct Storage {
  enum class Owner : uint8_t { caller_input, caller_output, arena };
  Owner owner = Owner::arena;
  size_t index = 0;      ///< which input or output of the plan
  size_t bytes = 0;      ///< of the largest tensor in it
  bool batched = false;  ///< bytes are per item
  int first = 0, last = 0;
};

struct StoragePlan {
  std::vector<Storage> storages;
  std::vector<int> of_tensor;  ///< storage of each tensor, -1 for one that has none
};

/// Inputs and outputs live in the caller's buffers. A step's output takes over an input's memory where the op
/// allows it and nobody reads that input later; what remains goes to the arena. The plan must be verified.
/// The steps of each of `blocks` run as one: what they read is alive until the last of them, what the others write has no
/// memory, and what the last one writes takes over none.
ULP_API StoragePlan assign_storage(const Plan& plan, std::span<const StepRange> blocks = {});

}  // namespace ulp::runtime
