// Gradient scaling: keep small gradients out of fp16's underflow, and skip the steps that overflowed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ulp/amp/scaling/scale_policy.h"
#include "ulp/base/export.h"

namespace torch::optim {
class Optimizer;
}

namespace ulp::amp {

/// The outcome of GradScaler::step.
enum class StepResult {
  stepped,            ///< the optimizer stepped
  skipped_nonfinite,  ///< a gradient (or the loss, where the caller says so) was inf or NaN; parameters and
                      ///< optimizer state are untouched
  skipped_underflow,  ///< finite gradients, but the scale has shrunk until 1 / scale is infinite in fp32 (0, or
                      ///< at most 2^-128): nothing can be unscaled; parameters and state are untouched
  no_gradients,       ///< no parameter of the optimizer has a gradient; nothing was done
};
/// The name of the enumerator.
ULP_API const char* to_string(StepResult result);
/// There were gradients, and the optimizer did not step.
constexpr bool is_skipped(StepResult result) {
  return result == StepResult::skipped_nonfinite || result == StepResult::skipped_underflow;
}

/// Defaults are PyTorch's.
struct ULP_API GradScalerOptions {
  double init_scale = 65536.0;     ///< > 0, finite in fp32
  double growth_factor = 2.0;      ///< > 1
  double backoff_factor = 0.5;     ///< in (0, 1)
  int64_t growth_interval = 2000;  ///< >= 1: updates without inf or NaN before the scale grows
  bool enabled = true;  ///< false: scale() returns its input, step() just steps, the rest does nothing

  /// An error names the field that is out of its range.
  void validate() const;
};

/// The state machine of torch.amp.GradScaler, step for step; the dialects differ in their ScalePolicy only.
///
///   scaler.scale(loss).backward();
///   scaler.unscale_(optimizer);                    // optional: before clipping or looking at gradients
///   auto result = scaler.step(optimizer);
///   scaler.update();                               // once, after all optimizers
///
/// Each optimizer goes ready -> unscaled -> stepped, and update() makes all of them ready again; calls out of
/// order are errors. A step is skipped only for the optimizer whose own gradients are not finite; update()
/// then shrinks the scale for all. Not for use from several threads at once.
class ULP_API GradScaler {
 public:
  GradScaler() : GradScaler(GradScalerOptions{}) {}
  explicit GradScaler(const GradScalerOptions& options);
  /// A scaler of another dialect, for instance GradScaler(8.0, StaticScale{}).
  GradScaler(double init_scale, ScalePolicy policy, bool enabled = true);

  /// loss * scale, in the graph of `loss`, on its device. Integer and undefined tensors are errors. A
  /// zero-dimensional fp16 or bf16 loss comes out in fp32.
  at::Tensor scale(const at::Tensor& loss);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& losses);

  /// Divides the optimizer's gradients by the scale in place (times float(1 / double(scale))) and records
  /// whether all of them are finite. Sparse gradients are coalesced first. fp16 gradients (of fp16
  /// parameters) are an error, for they have no room for unscaled values; so is a second call before
  /// update().
  void unscale_(torch::optim::Optimizer& optimizer);

  /// unscale_() if that has not been done, then optimizer.step() if all gradients and 1 / scale are finite.
  /// After a skipped step the gradients are there, unscaled, with their inf and NaN. A second call before
  /// update() is an error.
  ///
  /// LBFGS, which needs a closure, is an error.
  StepResult step(torch::optim::Optimizer& optimizer);
  /// An error unless disabled, as in PyTorch: a closure would run backward on losses that nobody scaled.
  /// Disabled, it is optimizer.step(closure).
  StepResult step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure);

  /// Instructions for a step that unscales by itself (fused_step).
  struct PendingStep {
    float inverse_scale = 1;        ///< still to be multiplied in; 1 after unscale_()
    std::optional<bool> nonfinite;  ///< what unscale_() found; nothing when it was not called
    bool underflow = false;         ///< 1 / scale is infinite: finite gradients end as skipped_underflow
  };
  /// The first half of step() for an optimizer that unscales by itself: the same checks of the order of
  /// calls. Gradients are left alone unless the scale is below 1 and the dialect judges what unscaling gives
  /// (Keras): then unscale_() is called. Not to be called when disabled.
  PendingStep begin_step(torch::optim::Optimizer& optimizer);
  /// The second half: what the step found and did, so that update() acts as after step().
  void end_step(const torch::optim::Optimizer& optimizer, StepResult result);

  /// Lets the policy choose the next scale from what all optimizers found since the last update. An error
  /// when there was nothing to find since; when no optimizer had any gradient the scale stays as it is.
  void update();
  /// Sets the scale (> 0) instead, and leaves the policy's counters untouched.
  void update(double new_scale);

  /// The current scale; 1 when disabled.
  double get_scale() const { return enabled_ ? scale_ : 1.0; }
  bool is_enabled() const { return enabled_; }
  const ScalePolicy& policy() const { return policy_; }
  /// The name of the policy: pytorch, keras2, keras, apex, deepspeed or static.
  const char* dialect() const;
  /// Counts towards the next growth: updates without inf or NaN since the scale last changed
  /// (deepspeed: since the last overflow). 0 for a static scale and when disabled.
  int64_t growth_tracker() const;

  /// The state for a checkpoint, between update() and the next scale(): `scale` and the policy's fields, for
  /// PyTorch's dialect under PyTorch's names (growth_factor, backoff_factor, growth_interval,
  /// _growth_tracker). Empty when disabled.
  ScalerState state_dict() const;
  /// Nothing when disabled. A scale of 0, to which overflows shrink those without a floor, comes back, but for a
  /// static one. A state that is empty, of another dialect, incomplete or out of range is an error
  /// and leaves the scaler as it was.
  void load_state_dict(const ScalerState& state);

 private:
  enum class Stage { ready, unscaled, stepped };
  struct OptimizerState {
    Stage stage = Stage::ready;
    std::optional<bool> nonfinite = {};  // what was found; nothing when there was no gradient
  };

  void expect_scaled(const char* where) const;
  float inverse_scale() const { return static_cast<float>(1.0 / static_cast<double>(scale_)); }
  bool underflow() const;       // 1 / scale is infinite in fp32: at 0 and up to 2^-128
  bool tests_unscaled() const;  // the dialect judges what unscaling gives, too

  bool enabled_;
  bool scaled_ = false;  // scale() has been called since construction
  float scale_;
  ScalePolicy policy_;
  std::unordered_map<const torch::optim::Optimizer*, OptimizerState> optimizers_;
};

}  // namespace ulp::amp
