#include "ulp/amp/scaling/scale_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "ulp/amp/state_fields.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kGradScalerWhere = "amp.GradScaler";
constexpr const char* kLoad = "amp.GradScaler.load_state_dict";

void at_least(const char* field, int64_t value, int64_t lowest) {
  if (value < lowest) fail(kGradScalerWhere, "expected ", field, " >= ", lowest, ", got ", value);
}

void positive_finite(const char* field, double value) {
  if (!(value > 0) || std::isinf(value))
    fail(kGradScalerWhere, "expected a finite ", field, " > 0, got ", value);
}

/// The counting that PyTorch, Keras and Apex share. True when `counter` has reached the interval.
template <typename Counter>
bool grows(Counter& counter, int64_t interval, bool found_nonfinite) {
  counter = found_nonfinite ? 0 : counter + 1;
  if (counter != interval) return false;
  counter = 0;
  return true;
}

// Products in double, rounded once to fp32, as in LibTorch's _amp_update_scale_.
float grown_if_finite(float scale, double factor) {
  const auto grown = static_cast<float>(scale * factor);
  return std::isfinite(grown) ? grown : scale;
}

float halved(float scale, double floor) {
  return static_cast<float>(std::max(scale * 0.5, floor));
}

template <typename Value>
Value checked(const char* name, double value) {
  if constexpr (std::is_same_v<Value, double>) {
    return value;
  } else {
    if (!(std::fabs(value) < 0x1p31) || value != std::trunc(value)) {
      fail(kLoad, "expected a whole number below 2^31 for ", name, ", got ", value);
    }
    if (std::is_same_v<Value, bool> && value != 0 && value != 1) {
      fail(kLoad, "expected 0 or 1 for ", name, ", got ", value);
    }
    return static_cast<Value>(value);
  }
}

template <typename Policy>
ScalerState save_fields(const Policy& policy) {
  ScalerState state = saved_fields(policy);
  if (state.empty()) state[std::string("_") + Policy::kName] = 1;
  return state;
}

std::string names(const ScalerState& state) {
  std::string text;
  for (const auto& entry : state) text.append(text.empty() ? "" : ", ").append(entry.first);
  return text;
}

bool same_names(const ScalerState& a, const ScalerState& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& left, const auto& right) { return left.first == right.first; });
}

/// The dialect that a state with these names is of, or null.
template <size_t... Index>
const char* dialect_of(const ScalerState& state, std::index_sequence<Index...>) {
  const char* found = nullptr;
  const auto look = [&](const auto& policy) {
    if (same_names(state, save_fields(policy))) found = policy.kName;
  };
  (look(std::variant_alternative_t<Index, ScalePolicy>()), ...);
  return found;
}

[[noreturn]] void refuse(const char* own, const ScalerState& expected, const ScalerState& state) {
  const char* other = dialect_of(state, std::make_index_sequence<std::variant_size_v<ScalePolicy>>());
  if (other != nullptr) {
    fail(kLoad, "expected a state of dialect '", own, "', got one of another dialect, '", other, "'");
  }
  fail(kLoad, "expected the entries ", names(expected), " of dialect '", own, "'; got ", names(state),
       " (damaged, or of another dialect)");
}

}  // namespace

void PyTorchScale::validate() const {
  if (!(growth_factor > 1) || std::isinf(growth_factor)) {
    fail(kGradScalerWhere, "expected growth_factor > 1, got ", growth_factor);
  }
  if (!(backoff_factor > 0 && backoff_factor < 1)) {
    fail(kGradScalerWhere, "expected backoff_factor between 0 and 1, got ", backoff_factor);
  }
  at_least("growth_interval", growth_interval, 1);
  at_least("growth tracker", growth_tracker, 0);
}

float PyTorchScale::next(float scale, bool found_nonfinite) {
  if (grows(growth_tracker, growth_interval, found_nonfinite)) return grown_if_finite(scale, growth_factor);
  return found_nonfinite ? static_cast<float>(scale * backoff_factor) : scale;
}

void Keras2Scale::validate() const {
  at_least("dynamic_growth_steps", dynamic_growth_steps, 1);
  at_least("good_steps", good_steps, 0);
}

float Keras2Scale::next(float scale, bool found_nonfinite) {
  // Keras 2 grows at or after the interval, the others exactly there: a loaded counter may be beyond it.
  const int64_t due = std::max(dynamic_growth_steps, good_steps + 1);
  if (grows(good_steps, due, found_nonfinite)) return grown_if_finite(scale, 2);
  return found_nonfinite ? halved(scale, 1) : scale;
}

void Keras3Scale::validate() const {
  at_least("dynamic_growth_steps", dynamic_growth_steps, 1);
  at_least("step_counter", step_counter, 0);
}

float Keras3Scale::next(float scale, bool found_nonfinite) {
  if (grows(step_counter, dynamic_growth_steps, found_nonfinite)) return grown_if_finite(scale, 2);
  return found_nonfinite ? halved(scale, 0) : scale;
}

void ApexScale::validate() const {
  at_least("scale_window", scale_window, 1);
  at_least("unskipped", unskipped, 0);
  positive_finite("max_loss_scale", max_loss_scale);
  if (!(min_loss_scale >= 0 && min_loss_scale <= max_loss_scale)) {
    fail(kGradScalerWhere, "expected min_loss_scale between 0 and ", max_loss_scale, ", got ",
         min_loss_scale);
  }
}

float ApexScale::next(float scale, bool found_nonfinite) {
  if (grows(unskipped, scale_window, found_nonfinite)) {
    return static_cast<float>(std::min<double>(grown_if_finite(scale, 2), max_loss_scale));
  }
  return found_nonfinite ? halved(scale, min_loss_scale) : scale;
}

void DeepSpeedScale::validate() const {
  at_least("scale_window", scale_window, 1);
  positive_finite("min_scale", min_scale);
  at_least("delayed_shift", delayed_shift, 1);
  at_least("cur_iter", cur_iter, 0);
  if (!(last_overflow_iter >= -1 && last_overflow_iter < std::max<int64_t>(cur_iter, 1))) {
    fail(kGradScalerWhere, "expected last_overflow_iter from -1 to below cur_iter, got ", last_overflow_iter,
         " at ", cur_iter);
  }
  if (!(cur_hysteresis >= 1 && cur_hysteresis <= delayed_shift)) {
    fail(kGradScalerWhere, "expected cur_hysteresis from 1 to ", delayed_shift, ", got ", cur_hysteresis);
  }
}

float DeepSpeedScale::next(float scale, bool found_nonfinite) {
  const float changed = found_nonfinite ? after_overflow(scale) : after_success(scale);
  if (found_nonfinite) last_overflow_iter = cur_iter;
  cur_iter += 1;
  return changed;
}

float DeepSpeedScale::after_overflow(float scale) {
  if (cur_hysteresis > 1) {
    cur_hysteresis -= 1;
    return scale;
  }
  if (scale == static_cast<float>(min_scale) && raise_error_at_min_scale) {
    fail("amp.GradScaler.update", "expected finite gradients at the smallest loss scale, ", min_scale,
         ", which cannot shrink; got inf or NaN");
  }
  return halved(scale, min_scale);
}

float DeepSpeedScale::after_success(float scale) {
  if (consecutive_hysteresis) cur_hysteresis = delayed_shift;
  const int64_t stable = cur_iter - last_overflow_iter - (grow_one_later ? 1 : 0);
  if (stable <= 0 || stable % scale_window != 0) return scale;
  cur_hysteresis = delayed_shift;
  return grown_if_finite(scale, 2);
}

ScalerState save_policy(const ScalePolicy& policy) {
  return std::visit([](const auto& chosen) { return save_fields(chosen); }, policy);
}

void load_policy(ScalePolicy& policy, const ScalerState& state) {
  std::visit(
      [&](auto& chosen) {
        const ScalerState expected = save_fields(chosen);
        if (!same_names(state, expected)) refuse(chosen.kName, expected, state);
        auto loaded = chosen;
        loaded.fields(loaded, [&](const char* name, auto& value) {
          value = checked<std::decay_t<decltype(value)>>(name, state.at(name));
        });
        loaded.validate();
        chosen = loaded;
      },
      policy);
}

}  // namespace ulp::amp
