#include "ulp/quant/observers/observer.h"

#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <typeinfo>

#include "ulp/base/error.h"

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
  if (const std::string wrong = mismatch(scheme_.granularity, x.sizes()); !wrong.empty()) {
    fail("quant.Observer", wrong, " for '", label_, "'");
  }
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
    TORCH_WARN("[quant.Observer] expected calibration data before qparams(), got ", why_unseen(), " for '",
               label_, "'; using scale 1 and zero point 0");
    return {at::ones({1}, at::kFloat), at::zeros({1}, at::kInt), scheme_};
  }
  const Bounds range = compute_bounds();
  return choose_qparams(range.min, range.max, scheme_);
}

Bounds Observer::bounds() const {
  if (!seen())
    fail("quant.Observer", "expected calibration data before bounds(), got ", why_unseen(), " for '", label_,
         "'");
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
std::string Observer::why_unseen() const {
  if (nan_count() + inf_count() == 0) return "none";
  return "only " + std::to_string(nan_count()) + " NaN and " + std::to_string(inf_count()) +
         " infinite values";
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

ObserverEntry MinMaxObserver::entry() {
  return {"min_max", [](const TensorRecipe& recipe, const std::string& label) {
            return std::make_shared<MinMaxObserver>(label, recipe.scheme);
          }};
}

Bounds MinMaxObserver::batch_bounds(const at::Tensor& values, bool all_finite) const {
  if (scheme().per_tensor()) {
    if (all_finite) return {values.min(), values.max()};
    const at::Tensor finite = at::isfinite(values);
    return {values.masked_fill(~finite, kInfinity).min(), values.masked_fill(~finite, -kInfinity).max()};
  }
  const at::Tensor rows = to_rows(values, scheme().granularity);
  const std::vector<int64_t> shape = scale_shape(scheme().granularity, values.sizes());
  if (all_finite) return {at::amin(rows, 1).reshape(shape), at::amax(rows, 1).reshape(shape)};
  const at::Tensor finite = at::isfinite(rows);
  return {at::amin(rows.masked_fill(~finite, kInfinity), 1).reshape(shape),
          at::amax(rows.masked_fill(~finite, -kInfinity), 1).reshape(shape)};
}

void MinMaxObserver::record(const at::Tensor& values, bool all_finite) {
  const Bounds batch = batch_bounds(values, all_finite);
  if ((seen() || min_val_.dim() > 0) && min_val_.sizes() != batch.min.sizes()) {
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
  if ((seen() || min_val_.dim() > 0) && min_val_.sizes() != that.min_val_.sizes()) {
    fail("quant.Observer.merge", "expected ", min_val_.numel(), " channels for '", label(), "', got ",
         that.min_val_.numel());
  }
  min_val_.set_data(at::minimum(min_val_, that.min_val_));
  max_val_.set_data(at::maximum(max_val_, that.max_val_));
}

MovingAverageObserver::MovingAverageObserver(std::string label, Scheme scheme, double averaging_constant)
    : MinMaxObserver(std::move(label), scheme), averaging_constant_(averaging_constant) {
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    fail("quant.MovingAverageObserver", "expected an averaging constant in (0, 1], got ", averaging_constant);
  }
}

ObserverEntry MovingAverageObserver::entry() {
  return {"moving_average", [](const TensorRecipe& recipe, const std::string& label) {
            return std::make_shared<MovingAverageObserver>(label, recipe.scheme, recipe.averaging_constant);
          }};
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

FixedObserver::FixedObserver(std::string label, Scheme scheme, double min, double max)
    : Observer(std::move(label), scheme) {
  if (!(std::isfinite(min) && std::isfinite(max) && min < max)) {
    fail("quant.FixedObserver", "expected finite bounds min < max for '", this->label(), "', got ", min,
         " and ", max);
  }
  if (!scheme.per_tensor()) {
    fail("quant.FixedObserver", "expected a scheme per tensor for '", this->label(), "', got ",
         scheme.to_string());
  }
  min_val_.fill_(min);
  max_val_.fill_(max);
}

ObserverEntry FixedObserver::entry() {
  return {"fixed",
          [](const TensorRecipe& recipe, const std::string& label) {
            return std::make_shared<FixedObserver>(label, recipe.scheme, recipe.fixed_min, recipe.fixed_max);
          },
          [](const TensorRecipe& recipe) -> std::string {
            const double min = recipe.fixed_min, max = recipe.fixed_max;
            if (std::isfinite(min) && std::isfinite(max) && min < max) return "";
            std::ostringstream text;
            text << "with finite fixed_min < fixed_max, got " << min << " and " << max;
            return text.str();
          }};
}

void FixedObserver::merge_seen(const Observer& other) {
  const auto& that = static_cast<const FixedObserver&>(other);
  if (!min_val_.equal(that.min_val_) || !max_val_.equal(that.max_val_)) {
    fail("quant.Observer.merge", "expected the same fixed bounds for '", label(), "'");
  }
}

}  // namespace ulp::quant
