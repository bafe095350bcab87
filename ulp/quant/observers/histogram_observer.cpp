#include "ulp/quant/observers/histogram_observer.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

constexpr int64_t kUpsampleRate = 16;
constexpr int64_t kCountedAtOnce = int64_t{1} << 23;  // a float counts exactly up to 2^24
constexpr float kLargestUsable = 1e34F;

float cube_difference(float end, float begin) {
  return (end * end * end - begin * begin * begin) / 3.0F;
}

// The expected squared error of representing the histogram by `codes` equal steps over bins [first, last]:
// values are taken as spread evenly inside a bin. Order of operations and types (double for the widths, float
// for the rest) as in PyTorch, because the search stops at the first rise and so depends on every bit. The
// unit of the widths is the caller's: floats hold no cubes of widths from 1e12 on, or below 1e-15.
double quantization_error(const std::vector<float>& histogram, double bin_width, int64_t first, int64_t last,
                          int64_t codes, std::vector<float>& norms) {
  const auto bins = static_cast<int64_t>(histogram.size());
  const double step = bin_width * static_cast<double>(last - first + 1) / static_cast<double>(codes);
  if (step == 0.0) return 0.0;
  const auto width_f = static_cast<float>(bin_width), step_f = static_cast<float>(step);
  const auto half_f = static_cast<float>(step / 2), top = static_cast<float>(codes - 1);
  const float whole_step = cube_difference(half_f, -half_f);
  const auto code_of = [&](float distance) {
    const auto code =
        static_cast<float>(std::floor(static_cast<double>(distance) / static_cast<double>(step_f)));
    return std::min(std::max(code, 0.0F), top);
  };
  for (int64_t i = 0; i < bins; ++i) {
    const float begin = static_cast<float>(i - first) * width_f, end = begin + width_f;
    const float code_begin = code_of(begin), code_end = code_of(end);
    const float density = histogram[static_cast<size_t>(i)] / width_f;
    const float center_begin = (code_begin + 0.5F) * step_f, center_end = code_end * step_f + half_f;
    float norm = density * cube_difference(half_f, begin - center_begin);
    norm += (code_end - code_begin - 1.0F) * (density * whole_step);
    norm += density * cube_difference(end - center_end, -half_f);
    norms[static_cast<size_t>(i)] = norm;
  }
  return at::from_blob(norms.data(), {bins}, at::kFloat).sum().item<float>();
}

struct BinRange {
  int64_t first, last;
};

// PyTorch's non-linear parameter search (from caffe2's NormMinimization): moves in from the side where the
// next quantile step of 1e-5 skips more bins, until the error rises.
BinRange search(const at::Tensor& counts, double bin_width, int64_t codes) {
  constexpr double kStep = 1e-5;
  int exponent = 0;
  const double width = std::frexp(bin_width, &exponent);  // the unit is a power of two: nothing is rounded
  const auto bins = counts.numel();
  const std::vector<float> histogram(counts.const_data_ptr<float>(), counts.const_data_ptr<float>() + bins);
  const at::Tensor cumulative = at::cumsum(counts, 0);
  const float* sums = cumulative.const_data_ptr<float>();
  const double total = counts.sum().item<float>();
  std::vector<float> norms(histogram.size());
  double alpha = 0.0, beta = 1.0, smallest = std::numeric_limits<double>::infinity();
  BinRange best{0, bins - 1};
  while (alpha < beta) {
    const double next_alpha = alpha + kStep, next_beta = beta - kStep;
    const auto low = static_cast<float>(next_alpha * total), high = static_cast<float>(next_beta * total);
    int64_t left = best.first, right = best.last;
    while (left < best.last && sums[left] < low) ++left;
    while (right > best.first && sums[right] > high) --right;
    BinRange next = best;
    if (left - best.first > best.last - right) {
      next.first = left;
      alpha = next_alpha;
    } else {
      next.last = right;
      beta = next_beta;
    }
    if (next.first == best.first && next.last == best.last) continue;
    const double error = quantization_error(histogram, width, next.first, next.last, codes, norms);
    if (error > smallest) break;
    smallest = error;
    best = next;
  }
  return best;
}

}  // namespace

HistogramObserver::HistogramObserver(std::string label, Scheme scheme, int64_t bins)
    : Observer(std::move(label), scheme), bins_(bins) {
  if (!scheme.per_tensor()) {
    fail("quant.HistogramObserver", "expected a scheme per tensor for '", this->label(), "', got ",
         scheme.to_string());
  }
  if (bins < 2) fail("quant.HistogramObserver", "expected at least 2 bins, got ", bins);
  histogram_ = register_buffer("histogram", at::zeros({bins}, at::kFloat));
}

ObserverEntry HistogramObserver::entry() {
  return {"histogram",
          [](const TensorRecipe& recipe, const std::string& label) {
            return std::make_shared<HistogramObserver>(label, recipe.scheme);
          },
          [](const TensorRecipe& recipe) -> std::string {
            if (recipe.scheme.per_tensor()) return "";
            return "per tensor for the observer histogram, got " + to_string(recipe.scheme.granularity);
          }};
}

void HistogramObserver::record(const at::Tensor& values, bool all_finite) {
  at::Tensor x = values.reshape(-1).to(at::kCPU);
  auto [low, high] = at::aminmax(x);
  if (!all_finite || low.item<float>() < -kLargestUsable || high.item<float>() > kLargestUsable) {
    const at::Tensor usable = x.masked_select(x.abs() <= kLargestUsable);
    if (all_finite)
      count_dropped(0, x.numel() - usable.numel());
    else
      count_dropped(0, at::isfinite(x).sum().item<int64_t>() - usable.numel());
    if (usable.numel() == 0) return;
    x = usable;
    std::tie(low, high) = at::aminmax(x);
  }
  if (!seen()) return set({low, high}, counts(x, low, high));
  const Bounds old{min_val_, max_val_};
  const Bounds wider{at::minimum(old.min, low), at::maximum(old.max, high)};
  set(wider, counts(x, wider.min, wider.max) + resample(histogram_, old, wider));
}

at::Tensor HistogramObserver::counts(const at::Tensor& values, const at::Tensor& min,
                                     const at::Tensor& max) const {
  const at::Scalar low = min.item(), high = max.item();
  at::Tensor result;
  for (int64_t begin = 0; begin < values.numel(); begin += kCountedAtOnce) {
    const int64_t count = std::min(kCountedAtOnce, values.numel() - begin);
    const at::Tensor part = at::histc(values.narrow(0, begin, count), bins_, low, high);
    result = result.defined() ? result + part : part;
  }
  return result;
}

at::Tensor HistogramObserver::resample(const at::Tensor& histogram, const Bounds& from,
                                       const Bounds& to) const {
  if (from.min.equal(to.min) && from.max.equal(to.max)) return histogram;
  if (from.min.equal(from.max)) {
    return at::histc(from.min, bins_, to.min.item(), to.max.item()) * histogram.sum();
  }
  // Each bin is cut into 16, and each piece goes to the new bin that holds its middle.
  const int64_t pieces = bins_ * kUpsampleRate;
  const at::Tensor weights = histogram.repeat_interleave(kUpsampleRate) / kUpsampleRate;
  const at::Tensor piece_width = (from.max - from.min) / pieces;
  const at::Tensor middles =
      at::linspace(from.min.item(), from.max.item(), pieces + 1, at::kFloat).narrow(0, 0, pieces) +
      0.5 * piece_width;
  const at::Tensor edges = at::linspace(to.min.item(), to.max.item(), bins_ + 1, at::kFloat);
  const at::Tensor target =
      (at::bucketize(middles, edges, /*out_int32=*/false, /*right=*/true) - 1).clamp(0, bins_ - 1);
  return at::bincount(target, weights, bins_);
}

void HistogramObserver::set(const Bounds& bounds, const at::Tensor& histogram) {
  min_val_.set_data(bounds.min.clone());
  max_val_.set_data(bounds.max.clone());
  histogram_.set_data(histogram);
}

Bounds HistogramObserver::compute_bounds() const {
  const double low = min_val_.item<float>(), high = max_val_.item<float>();
  const BinRange range =
      search(histogram_.contiguous(), (high - low) / static_cast<double>(bins_), int64_t{1} << scheme().bits);
  const at::Tensor bin_width = (max_val_ - min_val_) / bins_;
  return {min_val_ + bin_width * range.first, min_val_ + bin_width * (range.last + 1)};
}

void HistogramObserver::merge_seen(const Observer& other) {
  const auto& that = static_cast<const HistogramObserver&>(other);
  if (that.bins_ != bins_) {
    fail("quant.Observer.merge", "expected ", bins_, " bins for '", label(), "', got ", that.bins_);
  }
  const Bounds theirs{that.min_val_, that.max_val_};
  if (!seen()) return set(theirs, that.histogram_.clone());
  const Bounds ours{min_val_, max_val_};
  const Bounds both{at::minimum(ours.min, theirs.min), at::maximum(ours.max, theirs.max)};
  set(both, resample(histogram_, ours, both) + resample(that.histogram_, theirs, both));
}

}  // namespace ulp::quant
