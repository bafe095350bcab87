// The predicted memory of a training run over time.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/memory/predict/recording.h"

namespace ulp::memory {

/// How large a run is.
struct RunSize {
  int64_t batch = 1;   ///< samples that go through the model at once
  int64_t length = 0;  ///< of texts; 0 where nothing but the batch is free
  bool operator==(const RunSize&) const = default;
};

/// The bytes that are alive at some moment.
struct TimelinePoint {
  int64_t time = 0;  ///< allocations since the start
  Phase phase = Phase::setup;
  CategoryBytes bytes = {};
  ULP_API int64_t total() const;
};

/// A run of some size, as if it had been recorded.
struct Prediction {
  RunSize size = {};
  int64_t peak_bytes = 0;   ///< the most that lives at once
  CallSite cause = {};      ///< who asks for memory at that moment
  int64_t asked_bytes = 0;  ///< and for how much
  TimelinePoint at_peak = {};
  CategoryBytes largest = {};                ///< the most of each category, each at a moment of its own
  std::vector<TimelinePoint> timeline = {};  ///< in order of time, the peak among them

  int64_t at(Category category) const { return at_peak.bytes[static_cast<size_t>(category)]; }
};

/// Summarizes a recording moment by moment. The timeline has about so many points: the highest of each
/// stretch.
ULP_API Prediction summarize(const Recording& recording, RunSize size, size_t points = 400);

}  // namespace ulp::memory
