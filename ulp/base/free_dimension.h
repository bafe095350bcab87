// A dimension whose size is known when something runs, and the sizes that it may take.
#pragma once

#include <cstdint>
#include <string>

#include "ulp/base/export.h"

namespace ulp {

struct ULP_API FreeDimension {
  std::string name;
  int64_t min = 1, max = 1;  ///< sizes that it may take, both included
  int64_t multiple = 1;      ///< of which every size is one

  /// The smallest size that it may take: the first multiple from `min` on.
  int64_t smallest() const { return (min + multiple - 1) / multiple * multiple; }
  /// Throws ulp::Error `[where] ...` (bad_shape) naming the dimension for a size that it may not take.
  void check(int64_t size, const char* where) const;
  bool operator==(const FreeDimension&) const = default;
};

}  // namespace ulp
