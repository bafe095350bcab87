// Steps of a plan that lie side by side.
#pragma once

#include <cstddef>

namespace ulp::runtime {

struct StepRange {
  size_t first = 0, last = 0;  ///< both included

  bool operator==(const StepRange&) const = default;
};

}  // namespace ulp::runtime
