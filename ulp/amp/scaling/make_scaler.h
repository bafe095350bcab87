// Gradient scalers by name, for command lines and recipes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// Values that take the place of the dialect's own defaults.
struct ULP_API ScalerOverrides {
  std::optional<double> init_scale = {};        ///< > 0, finite in fp32
  std::optional<int64_t> growth_interval = {};  ///< >= 1: updates without inf or NaN before the scale grows
};

/// Whose loss scaling, with that peer's defaults.
enum class ScalerKind {
  pytorch,    ///< 2^16, doubled after 2000
  keras,      ///< 2^15, doubled after 2000; no floor (Keras 3)
  keras2,     ///< 2^15, doubled after 2000; not below 1
  apex,       ///< 2^16, doubled after 2000; not above 2^24
  deepspeed,  ///< 2^16, doubled after 1000, hysteresis 2; inf or NaN at 1 is an error
  fixed,      ///< one scale, always
  none        ///< a disabled scaler, which ignores all overrides
};

/// A kind of scaler, with its scale if that is fixed.
struct ULP_API ScalerSpec {
  /// Describes the texts that from_text() reads, for messages.
  static constexpr const char* kExpected =
      "one of pytorch, keras, keras3, keras2, apex, deepspeed, static:S with a scale S (static:8), none";

  ScalerKind kind = ScalerKind::pytorch;
  double scale = 1;  ///< of ScalerKind::fixed

  ScalerSpec() = default;
  ScalerSpec(ScalerKind its_kind)
      : kind(its_kind) {}  // NOLINT: options are written .scaler = ScalerKind::apex
  static ScalerSpec fixed(double scale);

  /// "pytorch", "static:8", ...
  std::string text() const;
  /// The spec of a text, or nothing; keras3 is keras.
  static std::optional<ScalerSpec> from_text(std::string_view text);
  bool operator==(const ScalerSpec&) const = default;
};

/// The scaler of a spec. Overrides that are out of range, or that a fixed scale does not have, are an error.
ULP_API GradScaler make_scaler(const ScalerSpec& spec, const ScalerOverrides& overrides = {});
/// Makes a scaler from its text. An unknown text is an error that lists the known ones.
ULP_API GradScaler make_scaler(std::string_view spec, const ScalerOverrides& overrides = {});

}  // namespace ulp::amp

template <>
struct ulp::EnumNames<ulp::amp::ScalerKind> {
  using enum amp::ScalerKind;
  static constexpr std::array<Word<amp::ScalerKind>, 7> list = {{{pytorch, "pytorch"},
                                                                 {keras, "keras"},
                                                                 {keras2, "keras2"},
                                                                 {apex, "apex"},
                                                                 {deepspeed, "deepspeed"},
                                                                 {fixed, "static:S"},
                                                                 {none, "none"}}};
};
