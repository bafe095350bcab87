#include "ulp/quant/observer.h"

#include <torch/utils.h>

#include <limits>
#include <typeinfo>

#include "ulp/base/error.h"
#include "ulp/quant/histogram_observer.h"

namespace ulp::quant {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_finite(const at::Tensor& scalar) {
  return std::isfinite(scalar.item<float>());
}

}  // namespace

Observer::Observer(std::string label, Scheme scheme) : label_(std::move(label)), scheme_(scheme) {
  scheme_.validate();
  min_val_ = register_buffer("min_val", at::full({}, kInfinity, at::kFloat));
  max_val_ = register_buffer("max_val", at::full({}, -kInfinity, at::kFloat));
  dropped_ = register_buffer("dropped", at::zeros({2}, at::kLong));
}

at::Tensor Observer::forward(const at::Tensor& x) {
  if (!enabled_ || x.numel() == 0) return x;
  const at::NoGradGuard no_grad;
  const at::Tensor values = x.detach().to(at::kFloat);
  const auto [low, high] = at::aminmax(values);
  const bool all_finite = is_finite(low) && is_finite(high);
  if (!all_finite) {
    count_dropped(at::isnan(values).sum().item<int64_t>(), at::isinf(values).sum().item<int64_t>());
  }
  record(values, all_finite);
  return x;
}

QParams Observer::qparams() const {
  if (!seen()) {
    TORCH_WARN("[quant.Observer] expected calibration data before qparams(), got none for '", label_,
               "'; using scale 1 and zero point 0");
    return {at::ones({1}, at::kFloat), at::zeros({1}, at::kInt), scheme_};
  }
  const Bounds range = compute_bounds();
  return choose_qparams(range.min, range.max, scheme_);
}

Bounds Observer::bounds() const {
  if (!seen())
    fail("quant.Observer", "expected calibration data before bounds(), got none for '", label_, "'");
  return compute_bounds();
}

void Observer::merge(const Observer& other) {
  if (typeid(*this) != typeid(other) || !(scheme_ == other.scheme_)) {
    fail("quant.Observer.merge", "expected an observer of the same kind and scheme for '", label_, "', got ",
         scheme_.to_string(), " and ", other.scheme_.to_string());
  }
  dropped_ += other.dropped_;
  if (other.seen()) merge_seen(other);
}

bool Observer::seen() const {
  return (min_val_ <= max_val_).any().item<bool>();
}
int64_t Observer::nan_count() const {
  return dropped_[0].item<int64_t>();
}
int64_t Observer::inf_count() const {
  return dropped_[1].item<int64_t>();
}

void Observer::count_dropped(int64_t nans, int64_t infinities) {
  dropped_[0] += nans;
  dropped_[1] += infinities;
}

Bounds MinMaxObserver::batch_bounds(const at::Tensor& values, bool all_finite) const {
  const int64_t axis = scheme().axis();
  if (axis >= values.dim()) {
    fail("quant.Observer", "expected a tensor with a dimension ", axis, " for '", label(), "', got shape ",
         values.sizes());
  }
  std::vector<int64_t> others;
  for (int64_t d = 0; d < values.dim(); ++d) {
    if (d != axis) others.push_back(d);
  }
  // With no dimension to reduce over (a vector per channel) amin would reduce over all.
  const auto reduce = [&](const at::Tensor& x, bool low) {
    if (others.empty() && values.dim() > 0) return x.clone();
    return low ? at::amin(x, others) : at::amax(x, others);
  };
  if (all_finite) return {reduce(values, true), reduce(values, false)};
  const at::Tensor finite = at::isfinite(values);
  return {reduce(values.masked_fill(~finite, kInfinity), true),
          reduce(values.masked_fill(~finite, -kInfinity), false)};
}

void MinMaxObserver::record(const at::Tensor& values, bool all_finite) {
  const Bounds batch = batch_bounds(values, all_finite);
  if (min_val_.dim() == 1 && min_val_.sizes() != batch.min.sizes()) {
    fail("quant.Observer", "expected ", min_val_.numel(), " channels for '", label(), "' as before, got ",
         batch.min.numel());
  }
  min_val_.set_data(at::minimum(min_val_, batch.min));
  max_val_.set_data(at::maximum(max_val_, batch.max));
}

Bounds MinMaxObserver::compute_bounds() const {
  // A channel that was never finite represents 0 alone.
  const at::Tensor valid = min_val_ <= max_val_;
  return {at::where(valid, min_val_, at::zeros_like(min_val_)),
          at::where(valid, max_val_, at::zeros_like(max_val_))};
}

void MinMaxObserver::merge_seen(const Observer& other) {
  const auto& that = static_cast<const MinMaxObserver&>(other);
  min_val_.set_data(at::minimum(min_val_, that.min_val_));
  max_val_.set_data(at::maximum(max_val_, that.max_val_));
}

MovingAverageObserver::MovingAverageObserver(std::string label, Scheme scheme, double averaging_constant)
    : MinMaxObserver(std::move(label), scheme), averaging_constant_(averaging_constant) {
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    fail("quant.MovingAverageObserver", "expected an averaging constant in (0, 1], got ", averaging_constant);
  }
}

void MovingAverageObserver::record(const at::Tensor& values, bool all_finite) {
  if (!seen()) return MinMaxObserver::record(values, all_finite);
  const Bounds batch = batch_bounds(values, all_finite);
  const auto follow = [&](at::Tensor& average, const at::Tensor& next) {
    const at::Tensor moved = average + averaging_constant_ * (next - average);
    const at::Tensor usable = at::where(at::isfinite(average), moved, next);
    average.set_data(at::where(at::isfinite(next), usable, average));
  };
  follow(min_val_, batch.min);
  follow(max_val_, batch.max);
}

void MovingAverageObserver::merge_seen(const Observer& other) {
  if (seen()) {
    fail("quant.Observer.merge",
         "expected observers whose result does not depend on the order of batches, got moving "
         "averages for '",
         label(), "'");
  }
  MinMaxObserver::merge_seen(other);
}

std::shared_ptr<Observer> make_observer(const TensorRecipe& recipe, const std::string& label) {
  switch (recipe.observer) {
    case ObserverKind::min_max:
      return std::make_shared<MinMaxObserver>(label, recipe.scheme);
    case ObserverKind::moving_average:
      return std::make_shared<MovingAverageObserver>(label, recipe.scheme);
    case ObserverKind::histogram:
      return std::make_shared<HistogramObserver>(label, recipe.scheme);
  }
  fail("quant.make_observer", "expected a known kind of observer, got ", static_cast<int>(recipe.observer));
}

}  // namespace ulp::quant
