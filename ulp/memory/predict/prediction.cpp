#include "ulp/memory/predict/prediction.h"

#include <algorithm>
#include <numeric>

namespace ulp::memory {

int64_t TimelinePoint::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

Prediction summarize(const Recording& recording, RunSize size, size_t points) {
  Prediction result{.size = size};
  const auto count = static_cast<int64_t>(recording.lives.size());
  const int64_t stretch = std::max<int64_t>(1, count / std::max<int64_t>(static_cast<int64_t>(points), 1));
  TimelinePoint now, highest;
  int64_t live = 0, highest_live = -1;
  replay(recording, [&](const Life& life, bool begins) {
    const auto category = static_cast<size_t>(life.category);
    const int64_t change = begins ? life.bytes : -life.bytes;
    now.bytes[category] += change;
    live += change;
    if (!begins) return;
    const CallSite& place = recording.call_site_of(life.begin.run);
    now.phase = place.phase;
    result.largest[category] = std::max(result.largest[category], now.bytes[category]);
    if (live > result.peak_bytes) {
      result.peak_bytes = live;
      result.cause = place;
      result.asked_bytes = life.bytes;
      result.at_peak = now;
    }
    if (live > highest_live) {
      highest = now;
      highest_live = live;
    }
    if (++now.time % stretch != 0 && now.time != count) return;
    result.timeline.push_back(highest);
    highest_live = -1;
  });
  return result;
}

}  // namespace ulp::memory
