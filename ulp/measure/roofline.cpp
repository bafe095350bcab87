#include "ulp/measure/roofline.h"

#include <algorithm>

#include "ulp/base/error.h"

namespace ulp::measure {

LeastTime least_time(const runtime::StepWork& work, const Peaks& peaks, const Surroundings& around) {
  if (peaks.memory.empty()) fail("measure.least_time", "expected the bandwidth of memory, got none");
  LeastTime least{.math = work.operations > 0 ? work.operations / peaks.rate(work.math) : 0,
                  .memory = 0,
                  .level = peaks.memory.front().name};
  double nearer = 0;  // bytes of the caches before this level
  for (const MemoryPeak& level : peaks.memory) {
    const double weights = std::max(around.constant_bytes, work.constant_bytes);
    const double gone = weights > 0 ? std::max(0.0, 1 - nearer / weights) : 0;
    const double bytes = std::max(0.0, work.tensor_bytes - nearer) + gone * work.constant_bytes;
    const double seconds = bytes / level.best();
    if (seconds > least.memory) least.memory = seconds, least.level = level.name;
    nearer = level.bytes;
  }
  return least;
}

std::string bound_text(const RooflinePoint& placed) {
  const std::string word = enum_name(placed.bound);
  return placed.bound == Bound::memory && placed.level != word ? word + " (" + placed.level + ")" : word;
}

RooflinePoint roofline_point(const runtime::StepWork& work, double seconds, const Peaks& peaks,
                             const Surroundings& around) {
  const LeastTime least = least_time(work, peaks, around);
  RooflinePoint placed{.level = least.level};
  if (work.bytes() > 0) placed.intensity = work.operations / work.bytes();
  if (!(seconds > 0)) return placed;
  placed.operations = work.operations / seconds;
  placed.bandwidth = work.bytes() / seconds;
  placed.math_share = least.math / seconds;
  placed.memory_share = least.memory / seconds;
  constexpr double kHalf = 0.5;
  placed.bound = placed.share() < kHalf                     ? Bound::latency
                 : placed.math_share >= placed.memory_share ? Bound::math
                                                            : Bound::memory;
  return placed;
}

}  // namespace ulp::measure
