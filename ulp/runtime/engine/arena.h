// Places buffers with known lifetimes in one block of memory, sharing what is not alive together.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::runtime {

inline constexpr size_t kArenaAlignment = 64;

/// A buffer alive from step `first` to step `last`, both included.
struct ArenaBuffer {
  size_t bytes = 0;
  int first = 0, last = 0;
};

struct ArenaLayout {
  std::vector<size_t> offsets;  ///< one per buffer, multiples of kArenaAlignment
  size_t total = 0;             ///< bytes, a multiple of kArenaAlignment
};

/// Greedy best fit, largest buffer first (Pisarchyk and Lee 2020, "Efficient Memory Management for Deep
/// Neural Net Inference", greedy by size): two buffers overlap in memory only if they never live at the same
/// step.
ULP_API ArenaLayout plan_arena(std::span<const ArenaBuffer> buffers);

inline constexpr size_t align_up(size_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

}  // namespace ulp::runtime
