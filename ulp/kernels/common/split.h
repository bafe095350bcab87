// Cutting a range of elements into tasks; internal to the room.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ulp/base/parallel.h"

namespace ulp::kernels {

/// Splits [0, n) into pieces that are worth a thread's while, multiples of 64 but for the last; body(begin,
/// count).
inline void split(int64_t n, const Parallel& parallel, FunctionRef<void(int64_t, int64_t)> body) {
  constexpr int64_t kPiece = 16384;
  if (n <= kPiece || parallel.workers() == 1) {
    if (n > 0) body(0, n);
    return;
  }
  parallel.run((n + kPiece - 1) / kPiece,
               [&](int64_t task, int) { body(task * kPiece, std::min(kPiece, n - task * kPiece)); });
}

}  // namespace ulp::kernels
