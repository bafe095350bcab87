// Observers that keep a histogram and cut what is rare: by percentile, by entropy, by mean squared error.
#pragma once

#include "ulp/quant/observers/calibration_search.h"
#include "ulp/quant/observers/observer.h"

namespace ulp::quant {

/// Counts values in nested bins (calibration_histogram.h), 64 KiB a channel whatever the number of batches,
/// and searches for bounds when asked. Merging is exact: the parts in any order give what the whole gives.
/// Per tensor or per channel; the same channels in every batch.
class ULP_API CalibrationObserver : public MinMaxObserver {
 public:
  CalibrationObserver(std::string label, Scheme scheme);

  /// i64 [channels, CalibrationHistogram::kBins].
  const at::Tensor& counts() const { return counts_; }

 protected:
  virtual Interval search(const BinnedValues& values) const = 0;
  void record(const at::Tensor& values, bool all_finite) override;
  Bounds compute_bounds() const override;
  void merge_seen(const Observer& other) override;

 private:
  CalibrationHistogram channel(int64_t index) const;
  void start(int64_t channels);

  at::Tensor counts_, exponents_;
};

/// Keeps `percentile` per cent of the values; see percentile_interval().
class ULP_API PercentileObserver final : public CalibrationObserver {
 public:
  /// Throws ulp::Error for a percentile outside (0, 100].
  PercentileObserver(std::string label, Scheme scheme, double percentile = 99.99);
  static ObserverEntry entry();

 protected:
  Interval search(const BinnedValues& values) const override;
  void merge_seen(const Observer& other) override;

 private:
  double percentile_;
};

/// Least Kullback-Leibler divergence; see entropy_interval().
class ULP_API EntropyObserver final : public CalibrationObserver {
 public:
  using CalibrationObserver::CalibrationObserver;
  static ObserverEntry entry();

 protected:
  Interval search(const BinnedValues& values) const override;
};

/// Least mean squared error; see mse_interval().
class ULP_API MseObserver final : public CalibrationObserver {
 public:
  using CalibrationObserver::CalibrationObserver;
  static ObserverEntry entry();

 protected:
  Interval search(const BinnedValues& values) const override;
};

}  // namespace ulp::quant
