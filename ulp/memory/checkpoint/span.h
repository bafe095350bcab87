// Consecutive calls and the ways in which they may be checkpointed.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/memory/checkpoint/cost_table.h"

namespace ulp::memory {

/// One way: what stays, what comes again, and how long that takes.
struct SpanOption {
  bool checkpointed = false;
  /// From the forward pass on: values that calls behind the span read, and what the backward needs of the
  /// rest.
  int64_t kept_bytes = 0;
  /// The most at a moment of its forward and backward, with gradients, and without what earlier spans keep.
  int64_t peak_bytes = 0;
  double seconds = 0;                ///< to compute what does not stay
  std::vector<int> kept = {};        ///< values made and only read in it
  std::vector<int> kept_inner = {};  ///< calls
};

/// Everything stays.
SpanOption keep_all(const CostTable& table, int begin, int end);

/// What stays is chosen such that its bytes + `bytes_per_second` * the seconds to compute the rest again are
/// least: a minimum cut between what the forward leaves and what the backward needs. With 0 nothing stays
/// that can come again.
SpanOption keep_some(const CostTable& table, int begin, int end, double bytes_per_second);

}  // namespace ulp::memory
