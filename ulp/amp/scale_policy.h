// When a loss scale grows and shrinks: one value type per dialect, all driven by the same GradScaler.
//
// To add a dialect: a struct with the five members of PyTorchScale, named in the variant ScalePolicy.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "ulp/base/export.h"

namespace ulp::amp {

/// The numbers of a saved scaler by name. Every dialect has its own set of names, so that a state of another
/// dialect is recognised.
using ScalerState = std::map<std::string, double>;

/// PyTorch's dynamic loss scale (torch.amp.GradScaler). After an update with a non-finite gradient the scale
/// is multiplied by `backoff_factor`; after `growth_interval` updates in a row without one it is multiplied
/// by `growth_factor`, unless that would not be finite. There is no floor.
struct ULP_API PyTorchScale {
  double growth_factor = 2.0;      ///< > 1
  double backoff_factor = 0.5;     ///< in (0, 1)
  int64_t growth_interval = 2000;  ///< >= 1
  int32_t growth_tracker = 0;      ///< updates without a non-finite gradient since the scale last changed

  /// An error names the field that is out of its range.
  void validate() const;
  /// The scale after an update.
  float next(float scale, bool found_nonfinite);
  /// The names of a saved state, PyTorch's own: growth_factor, backoff_factor, growth_interval,
  /// _growth_tracker.
  void save(ScalerState& state) const;
  /// Takes the values that save() wrote and validates them.
  void load(const ScalerState& state);
};

/// A fixed loss scale.
struct ULP_API StaticScale {
  void validate() const {}
  float next(float scale, bool) { return scale; }
  void save(ScalerState& state) const;
  void load(const ScalerState&) {}
};

using ScalePolicy = std::variant<PyTorchScale, StaticScale>;

}  // namespace ulp::amp
