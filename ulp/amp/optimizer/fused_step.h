// A whole optimizer step after backward in two passes over memory.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// The squares of all gradients, summed.
struct GradientTotal {
  double square_sum = 0;  ///< inf or NaN exactly when one of them is not finite
  int64_t gradients = 0;  ///< parameters that have one
};

/// Options of a step beside the update.
struct FusedStepOptions {
  std::optional<double> max_norm = std::nullopt;  ///< > 0: gradients are scaled down to this global 2-norm
  bool check_finite = false;                      ///< look for inf and NaN without a scaler, too
  /// The step is skipped as for a gradient with inf or NaN: the caller has found that the loss is not finite.
  /// Its gradients may be finite nevertheless (cross entropy of which every target is ignored).
  bool found_inf = false;
  /// Measures the gradients of all processes, where the optimizer has a part of them.
  /// The verdict, the norm and the clip factor follow from that then. Called once in every step, with the
  /// gradients as backward left them (unscale_() must not have been called).
  std::function<GradientTotal()> measure = {};
};

/// The sum of the squares of tensors (fp32, bf16 or fp16, on the CPU, dense in memory), as the first pass of
/// fused_step() measures gradients, in double. Throws Error for other tensors.
ULP_API double gradient_square_sum(const std::vector<at::Tensor>& gradients);

/// The result of a step.
struct FusedStepResult {
  StepResult result = StepResult::no_gradients;
  double grad_norm = 0;    ///< global 2-norm of the unscaled gradients before clipping; NaN when not measured
  double clip_factor = 1;  ///< what the gradients were multiplied with, as
                           ///< min(1, max_norm / (norm + 1e-6)) of clip_grad_norm_
};

/// unscale_, the check for inf and NaN, clip_grad_norm_ and optimizer.step() in at most two passes: one reads
/// the gradients, the other reads gradients, weights and state and writes weights and state. Without a
/// scaler, max_norm and check_finite, or after scaler->unscale_() without max_norm, the first pass is left
/// out.
///
/// `scaler` may be null or disabled; otherwise scaler->update() afterwards acts as after scaler->step(), and
/// calls out of order are the same errors. The gradient is multiplied by 1 / scale and by the clip factor in
/// fp32; the gradient tensors themselves are not written: after a step they are still scaled and not clipped.
/// After a skipped step they are unscaled in place, with their inf and NaN. fp16 gradients are fine here,
/// except with keras2 at a scale below 1, which has to call unscale_().
///
/// Whenever the first pass runs, a gradient with inf or NaN skips the step, with or without a scaler: weights
/// and state stay as they are. So does a scale whose inverse is infinite (skipped_underflow).
ULP_API FusedStepResult fused_step(FusedOptimizer& optimizer, GradScaler* scaler,
                                   const FusedStepOptions& options = {});

}  // namespace ulp::amp
