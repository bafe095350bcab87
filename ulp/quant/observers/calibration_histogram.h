// Counts of values in bins that nest when the range grows, so that recording and merging are exact.
#pragma once

#include <cstdint>
#include <span>

namespace ulp::quant {

/// One channel's counts. The bins cover [-2^exponent, 2^exponent) with kBinsPerSide equal bins on each side
/// of zero; bin i of them, from -kBinsPerSide, holds [i w, (i + 1) w) with w = 2^exponent / kBinsPerSide. A
/// larger value raises the exponent, which joins 2, 4, ... neighbours: no count is ever split, so the result
/// depends on the values alone, not on their order, on batches, or on which of two merged histograms they
/// came from. The largest magnitude is always above half the range, or 2^-149.
struct CalibrationHistogram {
  static constexpr int64_t kBinsPerSide = 4096;
  static constexpr int64_t kBins = 2 * kBinsPerSide;
  static constexpr int32_t kSmallestExponent = -148;  ///< of the smallest float32 above zero

  std::span<int64_t> counts;  ///< kBins; counts[i + kBinsPerSide] is bin i
  int32_t* exponent;

  double width() const;
  /// Counts the finite ones of n values on any number of threads. `largest`: at least the largest magnitude
  /// among them, finite; it raises the exponent as needed.
  void add(const float* values, int64_t n, float largest);
  /// Adds what another one has counted.
  void merge(std::span<const int64_t> other, int32_t other_exponent);

 private:
  void raise(int32_t to);
};

}  // namespace ulp::quant
