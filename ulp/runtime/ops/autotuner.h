// Times layers on synthetic rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ulp/kernels/conv/conv.h"

namespace ulp::runtime {

/// What times hold for: a table of them may come from another machine.
const std::string& measuring_machine();

class Autotuner {
 public:
  /// For layers of one configuration. `far`: in the network their weights have left the second level of the
  /// cache when their turn comes again, so they are driven out of it before each run.
  Autotuner(const kernels::ConvConfig& config, bool far);

  /// Seconds of the calling thread since this was made.
  double spent() const;

  /// What seconds() takes of memory.
  size_t bytes(std::span<const kernels::Conv* const> layers, int64_t items) const;

  /// The best of up to `turns` runs of each layer, one after the other in turns, on the calling thread:
  /// seconds of its processor time, above 0.
  std::vector<double> seconds(std::span<const kernels::Conv* const> layers, int64_t items, int turns = 5);

 private:
  void drive_out();
  size_t far_bytes() const;

  double begin_;
  int64_t input_bytes_, residual_bytes_, output_bytes_;  ///< of an item
  bool integer_, far_;
  std::vector<std::byte> others_;  ///< as much as the second level of the cache holds, and more
};

}  // namespace ulp::runtime
