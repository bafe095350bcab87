// Bandwidth of memory and caches. Internal to the room.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ulp/measure/peaks/peaks.h"
#include "ulp/measure/peaks/thread_barrier.h"

namespace ulp::measure {

/// Levels of cache, nearest first, then memory. No level is slower than the one behind it: what one gives, a
/// nearer one gives, too. Each is the best of the vectors that `isa` admits. `say` is called before each with its name.
std::vector<MemoryPeak> measure_memory(ThreadBarrier& crew, kernels::Isa isa, bool quick,
                                       const std::function<void(const std::string&)>& say);

}  // namespace ulp::measure
