#include "ulp/amp/scaling/make_scaler.h"

#include <charconv>
#include <iterator>

#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kMakeScalerWhere = "amp.make_scaler";
constexpr std::string_view kStatic = "static:";

struct Dialect {
  ScalerKind kind;
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

constexpr Dialect kDialects[] = {
    {ScalerKind::pytorch, 65536.0, with_interval<PyTorchScale, &PyTorchScale::growth_interval>},
    {ScalerKind::keras, 32768.0, with_interval<Keras3Scale, &Keras3Scale::dynamic_growth_steps>},
    {ScalerKind::keras2, 32768.0, with_interval<Keras2Scale, &Keras2Scale::dynamic_growth_steps>},
    {ScalerKind::apex, 65536.0, with_interval<ApexScale, &ApexScale::scale_window>},
    {ScalerKind::deepspeed, 65536.0, with_interval<DeepSpeedScale, &DeepSpeedScale::scale_window>},
};
static_assert(std::size(kDialects) + 2 == EnumNames<ScalerKind>::list.size(), "all but fixed and none");

}  // namespace

ScalerSpec ScalerSpec::fixed(double scale) {
  ScalerSpec spec(ScalerKind::fixed);
  spec.scale = scale;
  return spec;
}

std::string ScalerSpec::text() const {
  if (kind != ScalerKind::fixed) return enum_name(kind);
  char number[32];
  return kStatic.data() + std::string(number, std::to_chars(number, std::end(number), scale).ptr);
}

std::optional<ScalerSpec> ScalerSpec::from_text(std::string_view text) {
  if (!text.starts_with(kStatic)) {
    const auto kind = from_word<ScalerKind>(text == "keras3" ? "keras" : text);
    return kind ? std::optional<ScalerSpec>(*kind) : std::nullopt;
  }
  const std::string_view number = text.substr(kStatic.size());
  double scale = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), scale);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  return fixed(scale);
}

GradScaler make_scaler(const ScalerSpec& spec, const ScalerOverrides& overrides) {
  if (spec.kind == ScalerKind::none) return GradScaler({.enabled = false});
  for (const Dialect& dialect : kDialects) {
    if (dialect.kind != spec.kind) continue;
    return {overrides.init_scale.value_or(dialect.init_scale), dialect.policy(overrides.growth_interval)};
  }
  if (overrides.init_scale || overrides.growth_interval)
    fail(kMakeScalerWhere, "expected no init_scale and no growth_interval beside '", spec.text(),
         "', got one");
  return {spec.scale, StaticScale{}};
}

GradScaler make_scaler(std::string_view spec, const ScalerOverrides& overrides) {
  const auto found = ScalerSpec::from_text(spec);
  if (!found) fail(kMakeScalerWhere, "expected ", ScalerSpec::kExpected, "; got '", spec, "'");
  return make_scaler(*found, overrides);
}

}  // namespace ulp::amp
