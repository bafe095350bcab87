#include "ulp/amp/scaling/make_scaler.h"

#include <array>
#include <charconv>
#include <utility>

#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kWhere = "amp.make_scaler";
constexpr std::string_view kStatic = "static:";

struct Dialect {
  std::string_view name;
  double init_scale;
  ScalePolicy (*policy)(std::optional<int64_t> growth_interval);
};

/// The policy's defaults, but for the interval if there is one.
template <typename Policy, int64_t Policy::*Interval>
ScalePolicy with_interval(std::optional<int64_t> growth_interval) {
  Policy policy;
  policy.*Interval = growth_interval.value_or(policy.*Interval);
  return policy;
}

constexpr std::array<Dialect, 6> kDialects{{
    {"pytorch", 65536.0, with_interval<PyTorchScale, &PyTorchScale::growth_interval>},
    {"keras", 32768.0, with_interval<Keras3Scale, &Keras3Scale::dynamic_growth_steps>},
    {"keras3", 32768.0, with_interval<Keras3Scale, &Keras3Scale::dynamic_growth_steps>},
    {"keras2", 32768.0, with_interval<Keras2Scale, &Keras2Scale::dynamic_growth_steps>},
    {"apex", 65536.0, with_interval<ApexScale, &ApexScale::scale_window>},
    {"deepspeed", 65536.0, with_interval<DeepSpeedScale, &DeepSpeedScale::scale_window>},
}};

[[noreturn]] void refuse(std::string_view spec) {
  std::string known;
  for (const Dialect& dialect : kDialects) known.append(dialect.name).append(", ");
  fail(kWhere, "expected one of ", known, "static:S with a scale S (static:8), none; got '", spec, "'");
}

GradScaler make_static(std::string_view spec, const ScalerOverrides& overrides) {
  if (overrides.init_scale || overrides.growth_interval)
    fail(kWhere, "expected no init_scale and no growth_interval beside '", spec, "', got one");
  const std::string_view number = spec.substr(kStatic.size());
  double scale = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), scale);
  if (error != std::errc() || end != number.data() + number.size()) refuse(spec);
  return {scale, StaticScale{}};
}

}  // namespace

GradScaler make_scaler(std::string_view spec, const ScalerOverrides& overrides) {
  if (spec == "none") return GradScaler({.enabled = false});
  if (spec.substr(0, kStatic.size()) == kStatic) return make_static(spec, overrides);
  for (const Dialect& dialect : kDialects) {
    if (dialect.name != spec) continue;
    return {overrides.init_scale.value_or(dialect.init_scale), dialect.policy(overrides.growth_interval)};
  }
  refuse(spec);
}

}  // namespace ulp::amp
