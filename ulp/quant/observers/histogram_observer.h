// Chooses a clipping range from a histogram of the values: outliers are cut where that lowers the expected
// error.
#pragma once

#include "ulp/quant/observers/observer.h"

namespace ulp::quant {

/// PyTorch's HistogramObserver, value for value: a histogram over [min, max] whose range grows with the data,
/// and a search from the full range inwards in quantile steps of 1e-5 until the squared quantization error,
/// integrated over the histogram, rises. Per tensor only. The unit of the values does not matter: from 1e15
/// on and below 1e-12, where PyTorch's cubes leave float32 and its bounds collapse, they are those of the
/// same values in another unit.
///
/// merge() is exact where both have seen the same range, and otherwise resamples both to the common range, as
/// happens when new data widens the range. Values beyond +-1e34, where the histogram's float32 arithmetic
/// overflows, count as infinite.
class ULP_API HistogramObserver final : public Observer {
 public:
  HistogramObserver(std::string label, Scheme scheme, int64_t bins = 2048);
  static ObserverEntry entry();

  const at::Tensor& histogram() const { return histogram_; }  ///< f32 [bins]

 protected:
  void record(const at::Tensor& values, bool all_finite) override;
  Bounds compute_bounds() const override;
  void merge_seen(const Observer& other) override;

 private:
  at::Tensor counts(const at::Tensor& values, const at::Tensor& min, const at::Tensor& max) const;
  at::Tensor resample(const at::Tensor& histogram, const Bounds& from, const Bounds& to) const;
  void set(const Bounds& bounds, const at::Tensor& histogram);

  int64_t bins_;
  at::Tensor histogram_;
};

}  // namespace ulp::quant
