// Cutting a range of elements into tasks; internal to the room.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ulp/base/parallel.h"

namespace ulp::kernels {

constexpr int64_t kWorthAThread = 16384;  // elements that are worth a thread's while

/// Made when the library is loaded: what is made in a run may allocate.
inline const SerialParallel kAlone;

/// The calling thread alone for work on so few elements that waking another one takes longer.
inline const Parallel& worth_sharing(int64_t elements, const Parallel& parallel) {
  return elements <= kWorthAThread ? kAlone : parallel;
}

/// Splits [0, n) into pieces that are worth a thread's while, multiples of 64 but for the last; body(begin,
/// count).
inline void split(int64_t n, const Parallel& parallel, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= kWorthAThread || parallel.workers() == 1) {
    if (n > 0) body(0, n);
    return;
  }
  parallel.run((n + kWorthAThread - 1) / kWorthAThread, [&](int64_t task, int) {
    body(task * kWorthAThread, std::min(kWorthAThread, n - task * kWorthAThread));
  });
}

}  // namespace ulp::kernels
