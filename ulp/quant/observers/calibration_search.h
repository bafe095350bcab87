// Bounds for a channel from its histogram: by percentile, by entropy, by mean squared error.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/quant/observers/calibration_histogram.h"
#include "ulp/quant/scheme/scheme.h"

namespace ulp::quant {

/// One channel as the searches see it: its occupied bins, each a point at its middle and inside [min, max].
struct BinnedValues {
  /// A bin that holds values.
  struct Bin {
    int64_t index;  ///< from -CalibrationHistogram::kBinsPerSide; holds [index w, (index + 1) w)
    int64_t count;
    double value;
  };
  std::vector<Bin> bins;  ///< ascending, with counts above 0; at least one
  double width;
  float min, max;  ///< of the values, exact
  int64_t total;
};
/// The occupied bins of a histogram whose values lie in [min, max].
BinnedValues binned_values(const CalibrationHistogram& histogram, float min, float max);

/// Bounds of the values that codes are to cover.
struct Interval {
  float low, high;
};

/// Affine: the quantiles (1 - p) / 2 and (1 + p) / 2 of the values, p = percentile / 100. Symmetric: the
/// quantile p of their magnitudes on both sides. The quantile q is the value below which q of all lie: it is
/// interpolated in the bin of the ceil(q n)-th smallest value, so at most a bin's width from that value.
Interval percentile_interval(const BinnedValues& values, double percentile, Mapping mapping);

/// The threshold t, from the whole range inwards, with the least Kullback-Leibler divergence between the
/// values clipped to [-t, t] and the same values after quantization; Migacz, "8-bit inference with TensorRT",
/// 2017, for any number of codes and for affine schemes (which keep the side that reaches less far than t
/// as it is). Clipped values count in the outermost bin of the first distribution only. Of equal thresholds
/// the widest. Two rules of ours against thresholds that fit by accident: the bin of zero counts no more than
/// the larger of its neighbours (the zeros behind a relu are exact in any case), and a threshold below one
/// bin for each code, or one that clips more than a tenth of the values, is no candidate.
Interval entropy_interval(const BinnedValues& values, const Scheme& scheme);

/// The bounds with the least mean squared error of quantization: both shrunk by one factor 2^(-i/8), i up to
/// 96, then (affine, values on both sides of zero) each alone, then all again in steps of 2^(1/64). Of equal
/// ones the widest.
Interval mse_interval(const BinnedValues& values, const Scheme& scheme);

}  // namespace ulp::quant
