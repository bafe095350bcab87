#include "ulp/quant/observers/calibration_observer.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::quant {
namespace {

// task(channel) for each; one channel alone is left free to split its values among the threads.
template <typename Task>
void for_each_channel(int64_t channels, Task task) {
  if (channels == 1) return task(0);
  libtorch::parallel_for(0, channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) task(c);
  });
}

std::string no_histograms(const TensorRecipe& recipe) {
  const Scheme& scheme = recipe.scheme;
  if (scheme.per_tensor() || scheme.per_channel()) return "";
  return std::string("per tensor or per channel for the observer ") + recipe.observer.name() + ", got " +
         to_string(scheme.granularity);
}

}  // namespace

CalibrationObserver::CalibrationObserver(std::string label, Scheme scheme)
    : MinMaxObserver(std::move(label), scheme) {
  if (!scheme.per_tensor() && !scheme.per_channel()) {
    fail("quant.CalibrationObserver", "expected a scheme per tensor or per channel for '", this->label(),
         "', got ", scheme.to_string());
  }
  counts_ = register_buffer("counts", at::zeros({0, CalibrationHistogram::kBins}, at::kLong));
  exponents_ = register_buffer("exponents", at::zeros({0}, at::kInt));
}

void CalibrationObserver::start(int64_t channels) {
  counts_.set_data(at::zeros({channels, CalibrationHistogram::kBins}, at::kLong));
  exponents_.set_data(at::full({channels}, CalibrationHistogram::kSmallestExponent, at::kInt));
}

CalibrationHistogram CalibrationObserver::channel(int64_t index) const {
  constexpr int64_t kBins = CalibrationHistogram::kBins;
  return {{counts_.data_ptr<int64_t>() + index * kBins, static_cast<size_t>(kBins)},
          exponents_.data_ptr<int32_t>() + index};
}

void CalibrationObserver::record(const at::Tensor& values, bool all_finite) {
  MinMaxObserver::record(values, all_finite);
  const at::Tensor rows = to_rows(values, scheme().granularity).contiguous();
  const int64_t channels = rows.size(0), n = rows.size(1);
  if (counts_.size(0) == 0) start(channels);
  const float* min = min_val_.const_data_ptr<float>();
  const float* max = max_val_.const_data_ptr<float>();
  for_each_channel(channels, [&](int64_t c) {
    if (!(min[c] <= max[c])) return;  // nothing finite yet
    channel(c).add(rows.const_data_ptr<float>() + c * n, n, std::max(-min[c], max[c]));
  });
}

Bounds CalibrationObserver::compute_bounds() const {
  const Bounds whole = MinMaxObserver::compute_bounds();
  Bounds bounds{whole.min.clone(), whole.max.clone()};
  const float* min = min_val_.const_data_ptr<float>();
  const float* max = max_val_.const_data_ptr<float>();
  for_each_channel(counts_.size(0), [&](int64_t c) {
    if (!(min[c] <= max[c])) return;
    const Interval found = search(binned_values(channel(c), min[c], max[c]));
    bounds.min.mutable_data_ptr<float>()[c] = found.low;
    bounds.max.mutable_data_ptr<float>()[c] = found.high;
  });
  return bounds;
}

void CalibrationObserver::merge_seen(const Observer& other) {
  constexpr int64_t kBins = CalibrationHistogram::kBins;
  const auto& that = static_cast<const CalibrationObserver&>(other);
  const int64_t channels = that.counts_.size(0);
  MinMaxObserver::merge_seen(other);
  if (counts_.size(0) == 0) start(channels);
  for (int64_t c = 0; c < channels; ++c) {
    channel(c).merge({that.counts_.const_data_ptr<int64_t>() + c * kBins, static_cast<size_t>(kBins)},
                     that.exponents_.const_data_ptr<int32_t>()[c]);
  }
}

PercentileObserver::PercentileObserver(std::string label, Scheme scheme, double percentile)
    : CalibrationObserver(std::move(label), scheme), percentile_(percentile) {
  if (!(percentile > 0 && percentile <= 100)) {
    fail("quant.PercentileObserver", "expected a percentile in (0, 100] for '", this->label(), "', got ",
         percentile);
  }
}

ObserverEntry PercentileObserver::entry() {
  return {"percentile",
          [](const TensorRecipe& recipe, const std::string& label) {
            return std::make_shared<PercentileObserver>(label, recipe.scheme, recipe.percentile);
          },
          no_histograms};
}

ObserverEntry EntropyObserver::entry() {
  return {"entropy",
          [](const TensorRecipe& recipe, const std::string& label) {
            return std::make_shared<EntropyObserver>(label, recipe.scheme);
          },
          no_histograms};
}

ObserverEntry MseObserver::entry() {
  return {"mse",
          [](const TensorRecipe& recipe, const std::string& label) {
            return std::make_shared<MseObserver>(label, recipe.scheme);
          },
          no_histograms};
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
