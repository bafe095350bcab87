// Learning rate over a training run.
#pragma once

#include <cstdint>

namespace ulp::train {

/// Linear warm-up from 0 to 1 over the first `warmup` share of the steps, then linear decay to 0 ("slanted
/// triangle", Howard and Ruder 2018; one-cycle without momentum, Smith 2018). Factor of the peak rate for
/// `step` in [0, total).
inline double one_cycle(int64_t step, int64_t total, double warmup = 0.25) {
  const double at = static_cast<double>(step) / static_cast<double>(total > 0 ? total : 1);
  if (at >= 1.0) return 0.0;
  return at < warmup ? at / warmup : (1.0 - at) / (1.0 - warmup);
}

}  // namespace ulp::train
