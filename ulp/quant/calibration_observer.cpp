#include "ulp/quant/calibration_observer.h"

#include <torch/utils.h>

#include <limits>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

struct Extremes {
  float min = std::numeric_limits<float>::infinity(), max = -std::numeric_limits<float>::infinity();
};

Extremes finite_extremes(const float* values, int64_t n) {
  Extremes found;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i])) continue;
    found.min = std::min(found.min, values[i]);
    found.max = std::max(found.max, values[i]);
  }
  return found;
}

}  // namespace

CalibrationObserver::CalibrationObserver(std::string label, Scheme scheme)
    : Observer(std::move(label), scheme) {
  if (!scheme.per_tensor() && !scheme.per_channel()) {
    fail("quant.CalibrationObserver", "expected a scheme per tensor or per channel for '", this->label(),
         "', got ", scheme.to_string());
  }
  counts_ = register_buffer("counts", at::zeros({0, CalibrationHistogram::kBins}, at::kLong));
  exponents_ = register_buffer("exponents", at::zeros({0}, at::kInt));
}

void CalibrationObserver::start(int64_t channels) {
  const std::vector<int64_t> shape = scheme().per_tensor() ? std::vector<int64_t>{} : std::vector{channels};
  counts_.set_data(at::zeros({channels, CalibrationHistogram::kBins}, at::kLong));
  exponents_.set_data(at::full({channels}, CalibrationHistogram::kSmallestExponent, at::kInt));
  min_val_.set_data(at::full(shape, Extremes().min, at::kFloat));
  max_val_.set_data(at::full(shape, Extremes().max, at::kFloat));
}

CalibrationHistogram CalibrationObserver::channel(int64_t index) const {
  constexpr int64_t kBins = CalibrationHistogram::kBins;
  return {{counts_.data_ptr<int64_t>() + index * kBins, static_cast<size_t>(kBins)},
          exponents_.data_ptr<int32_t>() + index};
}

void CalibrationObserver::record(const at::Tensor& values, bool) {
  const at::Tensor rows = to_rows(values, scheme().granularity).to(at::kCPU).contiguous();
  const int64_t channels = rows.size(0), n = rows.size(1);
  if (counts_.size(0) == 0) start(channels);
  if (counts_.size(0) != channels) {
    fail("quant.Observer", "expected ", counts_.size(0), " channels for '", label(), "' as before, got ",
         channels);
  }
  float* min = min_val_.data_ptr<float>();
  float* max = max_val_.data_ptr<float>();
  for (int64_t c = 0; c < channels; ++c) {
    const float* row = rows.const_data_ptr<float>() + c * n;
    const Extremes found = finite_extremes(row, n);
    min[c] = std::min(min[c], found.min);
    max[c] = std::max(max[c], found.max);
    channel(c).add(row, n);
  }
}

Bounds CalibrationObserver::compute_bounds() const {
  Bounds bounds{at::zeros_like(min_val_), at::zeros_like(max_val_)};
  for (int64_t c = 0; c < counts_.size(0); ++c) {
    const float min = min_val_.const_data_ptr<float>()[c], max = max_val_.const_data_ptr<float>()[c];
    if (!(min <= max)) continue;  // a channel that was never finite represents 0 alone
    const Interval found = search(binned_values(channel(c), min, max));
    bounds.min.mutable_data_ptr<float>()[c] = found.low;
    bounds.max.mutable_data_ptr<float>()[c] = found.high;
  }
  return bounds;
}

void CalibrationObserver::merge_seen(const Observer& other) {
  constexpr int64_t kBins = CalibrationHistogram::kBins;
  const auto& that = static_cast<const CalibrationObserver&>(other);
  const int64_t channels = that.counts_.size(0);
  if (counts_.size(0) == 0) start(channels);
  if (counts_.size(0) != channels) {
    fail("quant.Observer.merge", "expected ", counts_.size(0), " channels for '", label(), "', got ",
         channels);
  }
  for (int64_t c = 0; c < channels; ++c) {
    channel(c).merge({that.counts_.const_data_ptr<int64_t>() + c * kBins, static_cast<size_t>(kBins)},
                     that.exponents_.const_data_ptr<int32_t>()[c]);
  }
  min_val_.set_data(at::minimum(min_val_, that.min_val_));
  max_val_.set_data(at::maximum(max_val_, that.max_val_));
}

PercentileObserver::PercentileObserver(std::string label, Scheme scheme, double percentile)
    : CalibrationObserver(std::move(label), scheme), percentile_(percentile) {
  if (!(percentile > 0 && percentile <= 100)) {
    fail("quant.PercentileObserver", "expected a percentile in (0, 100] for '", this->label(), "', got ",
         percentile);
  }
}

Interval PercentileObserver::search(const BinnedValues& values) const {
  return percentile_interval(values, percentile_, scheme().mapping);
}

void PercentileObserver::merge_seen(const Observer& other) {
  const double theirs = static_cast<const PercentileObserver&>(other).percentile_;
  if (theirs != percentile_) {
    fail("quant.Observer.merge", "expected the percentile ", percentile_, " for '", label(), "', got ",
         theirs);
  }
  CalibrationObserver::merge_seen(other);
}

Interval EntropyObserver::search(const BinnedValues& values) const {
  return entropy_interval(values, scheme());
}

Interval MseObserver::search(const BinnedValues& values) const {
  return mse_interval(values, scheme());
}

}  // namespace ulp::quant
