// Gradient scalers by name, for command lines and recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// What a caller may want other than the dialect's own defaults.
struct ULP_API ScalerOverrides {
  std::optional<double> init_scale = {};        ///< > 0, finite in fp32
  std::optional<int64_t> growth_interval = {};  ///< >= 1: updates without inf or NaN before the scale grows
};

/// A scaler of the dialect that `spec` names, with that dialect's defaults:
///
///   pytorch          2^16, doubled after 2000
///   keras or keras3  2^15, doubled after 2000; no floor
///   keras2           2^15, doubled after 2000; not below 1
///   apex             2^16, doubled after 2000; not above 2^24
///   deepspeed        2^16, doubled after 1000, hysteresis 2; inf or NaN at 1 is an error
///   static:S         S, always
///   none             a disabled scaler, which ignores all overrides
///
/// An unknown spec is an error that lists these; so are overrides that are out of range, or that a static
/// scale does not have.
ULP_API GradScaler make_scaler(std::string_view spec, const ScalerOverrides& overrides = {});

}  // namespace ulp::amp
