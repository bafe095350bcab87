// One choice for each of several weights: the least sum of losses for every sum of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::quant {

/// The cost of one choice.
struct BitChoice {
  int64_t bytes = 0;
  double loss = 0;
};

/// All sums of one choice for each weight that no other sum beats in both bytes and loss, by a dynamic
/// programme over bytes. It is exact to the byte where at most `most_states` sums are left of each step.
/// Where there are more, the bytes of each choice are rounded up to multiples of resolution(), the smallest
/// power of two with which there are not: sums are then within weights x resolution of the least, and no sum
/// is said to be smaller than it is.
class ULP_API BitAllocations {
 public:
  /// Throws ulp::Error for a weight without choices, negative bytes and losses that are NaN.
  explicit BitAllocations(const std::vector<std::vector<BitChoice>>& weights, size_t most_states = 1 << 16);

  /// In ascending order of bytes, which is descending order of losses.
  size_t size() const { return sums_.size(); }
  int64_t bytes(size_t i) const { return sums_.at(i).bytes; }
  double loss(size_t i) const { return sums_.at(i).loss; }
  /// The choice of each weight.
  std::vector<size_t> choices(size_t i) const;
  int64_t resolution() const { return resolution_; }
  /// The one of the least loss of those up to so many bytes; size() where there is none.
  size_t within_bytes(int64_t most) const;
  /// The smallest one of those up to that loss; size() where there is none.
  size_t within_loss(double most) const;

 private:
  struct Sum {
    int64_t bytes = 0;  ///< as they are
    int64_t units = 0;  ///< in multiples of the resolution
    double loss = 0;
    uint32_t before = 0;  ///< the sum of the weights before
    uint32_t choice = 0;
  };
  bool solve(const std::vector<std::vector<BitChoice>>& weights, size_t most_states);

  int64_t resolution_ = 1;
  std::vector<std::vector<Sum>> steps_;  ///< behind each weight
  std::vector<Sum> sums_;                ///< behind the last one
};

}  // namespace ulp::quant
