#include "ulp/memory/predict/recording.h"

#include <algorithm>

namespace ulp::memory {

std::string describe(const CallSite& place) {
  std::string text = enum_name(place.phase);
  if (!place.op.empty()) text += ", " + place.op;
  if (!place.scope.empty()) text += " at " + place.scope;
  return text;
}

void replay(const Recording& recording, FunctionRef<void(const Life& life, bool begins)> tell) {
  std::vector<const Life*> ending;
  for (const Life& life : recording.lives) {
    if (life.end) ending.push_back(&life);
  }
  std::ranges::stable_sort(ending, {}, [](const Life* life) { return *life->end; });
  auto next = ending.begin();
  for (const Life& life : recording.lives) {
    for (; next != ending.end() && *(*next)->end <= life.begin; ++next) tell(**next, false);
    tell(life, true);
  }
  for (; next != ending.end(); ++next) tell(**next, false);
}

int64_t Recording::peak_bytes() const {
  int64_t live = 0, peak = 0;
  replay(*this, [&](const Life& life, bool begins) {
    live += begins ? life.bytes : -life.bytes;
    peak = std::max(peak, live);
  });
  return peak;
}

}  // namespace ulp::memory
