// When a loss scale grows and shrinks: one value type per dialect, all driven by the same GradScaler.
//
// To add a dialect: a struct with the members of PyTorchScale, named in the variant ScalePolicy, a word in
// ScalerKind and a line in the table of make_scaler.cpp.
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
  static constexpr const char* kName = "pytorch";
  /// Where inf and NaN are looked for: in the gradients as backward left them, or (true) after unscaling too.
  /// The verdicts differ while the scale is below 1 only.
  static constexpr bool kTestsUnscaled = false;

  double growth_factor = 2.0;      ///< > 1
  double backoff_factor = 0.5;     ///< in (0, 1)
  int64_t growth_interval = 2000;  ///< >= 1
  int32_t growth_tracker = 0;      ///< updates without a non-finite gradient since the scale last changed

  /// An error names the field that is out of its range.
  void validate() const;
  /// The scale after an update.
  float next(float scale, bool found_nonfinite);
  /// Counts towards the next growth.
  int64_t counter() const { return growth_tracker; }
  /// Every field that a saved state holds, with its name there; these are PyTorch's own names.
  template <typename Self, typename Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("growth_factor", self.growth_factor);
    visit("backoff_factor", self.backoff_factor);
    visit("growth_interval", self.growth_interval);
    visit("_growth_tracker", self.growth_tracker);
  }
};

/// tf.keras.mixed_precision.LossScaleOptimizer of Keras 2: doubled after `dynamic_growth_steps` updates in a
/// row without a non-finite gradient if the result is finite, else halved, but not below 1.
struct ULP_API Keras2Scale {
  static constexpr const char* kName = "keras2";
  static constexpr bool kTestsUnscaled = true;

  int64_t dynamic_growth_steps = 2000;  ///< >= 1
  int64_t good_steps = 0;

  void validate() const;
  float next(float scale, bool found_nonfinite);
  int64_t counter() const { return good_steps; }
  template <typename Self, typename Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("dynamic_growth_steps", self.dynamic_growth_steps);
    visit("good_steps", self.good_steps);
  }
};

/// keras.optimizers.LossScaleOptimizer of Keras 3: as in Keras 2, but without a floor. Where Keras 3 itself
/// doubles its scale to inf, never to come back, this one stays at the last finite scale.
struct ULP_API Keras3Scale {
  static constexpr const char* kName = "keras";
  static constexpr bool kTestsUnscaled = false;

  int64_t dynamic_growth_steps = 2000;  ///< >= 1
  int64_t step_counter = 0;

  void validate() const;
  float next(float scale, bool found_nonfinite);
  int64_t counter() const { return step_counter; }
  template <typename Self, typename Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("dynamic_growth_steps", self.dynamic_growth_steps);
    visit("step_counter", self.step_counter);
  }
};

/// apex.amp's LossScaler: doubled after `scale_window` updates in a row without a non-finite gradient, up to
/// `max_loss_scale`; else halved, down to `min_loss_scale`.
struct ULP_API ApexScale {
  static constexpr const char* kName = "apex";
  static constexpr bool kTestsUnscaled = false;

  int64_t scale_window = 2000;         ///< >= 1
  double max_loss_scale = 16777216.0;  ///< > 0
  double min_loss_scale = 0.0;         ///< in [0, max_loss_scale]; 0: no floor
  int64_t unskipped = 0;

  void validate() const;
  float next(float scale, bool found_nonfinite);
  int64_t counter() const { return unskipped; }
  template <typename Self, typename Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("scale_window", self.scale_window);
    visit("max_loss_scale", self.max_loss_scale);
    visit("min_loss_scale", self.min_loss_scale);
    visit("unskipped", self.unskipped);
  }
};

/// DeepSpeed's DynamicLossScaler, with the defaults of its JSON configuration. The first `delayed_shift` - 1
/// overflows only use up hysteresis; further ones halve the scale, down to `min_scale`, and an overflow at
/// the minimum is an error. The scale doubles whenever the updates since the last overflow are a multiple of
/// `scale_window`, which also refills the hysteresis.
struct ULP_API DeepSpeedScale {
  static constexpr const char* kName = "deepspeed";
  static constexpr bool kTestsUnscaled = false;

  int64_t scale_window = 1000;           ///< >= 1
  double min_scale = 1.0;                ///< > 0
  int64_t delayed_shift = 2;             ///< >= 1: the hysteresis; 1: every overflow halves the scale
  bool consecutive_hysteresis = false;   ///< refill the hysteresis in every update without overflow
  bool raise_error_at_min_scale = true;  ///< false: stay at the minimum
  /// DeepSpeed 0.17.1 and later grow one update later: after scale_window + 1 updates without overflow the
  /// first time.
  bool grow_one_later = false;
  int64_t cur_iter = 0;  ///< updates so far
  int64_t last_overflow_iter = -1;
  int64_t cur_hysteresis = delayed_shift;  ///< in [1, delayed_shift]: what is left

  void validate() const;
  /// Throws, and changes nothing, for an overflow at the minimum while that is an error.
  float next(float scale, bool found_nonfinite);
  /// Updates since the last overflow.
  int64_t counter() const { return cur_iter - last_overflow_iter - 1; }
  template <typename Self, typename Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("scale_window", self.scale_window);
    visit("min_scale", self.min_scale);
    visit("delayed_shift", self.delayed_shift);
    visit("consecutive_hysteresis", self.consecutive_hysteresis);
    visit("raise_error_at_min_scale", self.raise_error_at_min_scale);
    visit("grow_one_later", self.grow_one_later);
    visit("cur_iter", self.cur_iter);
    visit("last_overflow_iter", self.last_overflow_iter);
    visit("cur_hysteresis", self.cur_hysteresis);
  }

 private:
  float after_overflow(float scale);
  float after_success(float scale);
};

/// A fixed loss scale.
struct ULP_API StaticScale {
  static constexpr const char* kName = "static";
  static constexpr bool kTestsUnscaled = false;

  void validate() const {}
  float next(float scale, bool) { return scale; }
  int64_t counter() const { return 0; }
  template <typename Self, typename Visit>
  static void fields(Self&, const Visit&) {}
};

/// Any of the dialects above.
using ScalePolicy =
    std::variant<PyTorchScale, Keras2Scale, Keras3Scale, ApexScale, DeepSpeedScale, StaticScale>;

/// The policy's fields by name; a policy without fields leaves a mark of its own.
ULP_API ScalerState save_policy(const ScalePolicy& policy);

/// Takes over the fields that save_policy() wrote for a policy of the same dialect. A state of another
/// dialect, an incomplete one and values out of range are errors, and leave the policy as it was.
ULP_API void load_policy(ScalePolicy& policy, const ScalerState& state);

}  // namespace ulp::amp
