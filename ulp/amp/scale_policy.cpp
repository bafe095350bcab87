#include "ulp/amp/scale_policy.h"

#include <cmath>

#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

int64_t whole(const ScalerState& state, const char* name) {
  const double value = state.at(name);
  if (!(std::fabs(value) < 0x1p31) || value != std::trunc(value)) {
    fail("amp.GradScaler.load_state_dict", "expected a whole number below 2^31 for ", name, ", got ", value);
  }
  return static_cast<int64_t>(value);
}

}  // namespace

void PyTorchScale::validate() const {
  if (!(growth_factor > 1) || std::isinf(growth_factor)) {
    fail("amp.GradScaler", "expected growth_factor > 1, got ", growth_factor);
  }
  if (!(backoff_factor > 0 && backoff_factor < 1)) {
    fail("amp.GradScaler", "expected backoff_factor between 0 and 1, got ", backoff_factor);
  }
  if (growth_interval < 1) fail("amp.GradScaler", "expected growth_interval >= 1, got ", growth_interval);
  if (growth_tracker < 0) fail("amp.GradScaler", "expected a growth tracker >= 0, got ", growth_tracker);
}

float PyTorchScale::next(float scale, bool found_nonfinite) {
  // Products in double, rounded once to fp32, as in LibTorch's _amp_update_scale_.
  if (found_nonfinite) {
    growth_tracker = 0;
    return static_cast<float>(scale * backoff_factor);
  }
  growth_tracker += 1;
  if (growth_tracker != growth_interval) return scale;
  growth_tracker = 0;
  const auto grown = static_cast<float>(scale * growth_factor);
  return std::isfinite(grown) ? grown : scale;
}

void PyTorchScale::save(ScalerState& state) const {
  state["growth_factor"] = growth_factor;
  state["backoff_factor"] = backoff_factor;
  state["growth_interval"] = static_cast<double>(growth_interval);
  state["_growth_tracker"] = growth_tracker;
}

void PyTorchScale::load(const ScalerState& state) {
  PyTorchScale loaded;
  loaded.growth_factor = state.at("growth_factor");
  loaded.backoff_factor = state.at("backoff_factor");
  loaded.growth_interval = whole(state, "growth_interval");
  loaded.growth_tracker = static_cast<int32_t>(whole(state, "_growth_tracker"));
  loaded.validate();
  *this = loaded;
}

void StaticScale::save(ScalerState& state) const {
  state["_static"] = 1;
}

}  // namespace ulp::amp
