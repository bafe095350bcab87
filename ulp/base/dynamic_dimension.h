// Dimensions whose sizes are known when something runs, and the sizes that they may take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "ulp/base/export.h"

namespace ulp {

struct ULP_API DynamicDimension {
  std::string name;
  int64_t min = 1, max = 1;  ///< sizes that it may take, both included
  int64_t multiple = 1;      ///< of which every size is one

  /// The smallest size that it may take: the first multiple from `min` on.
  int64_t smallest() const { return (min + multiple - 1) / multiple * multiple; }
  /// Throws ulp::Error `[where] ...` (bad_shape) naming the dimension for a size that it may not take.
  void check(int64_t size, const char* where) const;
  bool operator==(const DynamicDimension&) const = default;
};

/// Which batch sizes a model computes. Without bounds it takes every one.
struct ULP_API BatchRange {
  static constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  int64_t min = 0, max = kAny;  ///< both included

  bool bounded() const { return min > 0 || max < kAny; }
  bool contains(int64_t batch) const { return batch >= min && batch <= max; }
  /// The allowed batch size that is closest to `batch`.
  int64_t nearest(int64_t batch) const { return std::clamp(batch, min, max); }
  /// A batch size for examples: 2, enough for batch norms, or the closest one that leaves `more` sizes above
  /// it.
  int64_t example(int64_t more) const { return std::min(nearest(2), max - more); }
  /// "4 to 8", or "4 or more".
  std::string text() const;
  /// Throws ulp::Error `[where] ...` (bad_shape) for a batch size outside of the range.
  void check(int64_t batch, const char* where) const;
  bool operator==(const BatchRange&) const = default;
};

}  // namespace ulp
