#include "ulp/amp/optimizer/fused_step.h"

#include <cmath>
#include <limits>

#include "ulp/amp/optimizer/fused_plan.h"
#include "ulp/amp/scaling/unscale.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

/// As clip_grad_norm_ computes it.
double clip_factor(double max_norm, double norm) {
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace

FusedStepResult fused_step(FusedOptimizer& optimizer, GradScaler* scaler, const FusedStepOptions& options) {
  if (options.max_norm && !(*options.max_norm > 0))
    fail("amp.fused_step", "expected max_norm > 0, got ", *options.max_norm);
  const bool scaled = scaler != nullptr && scaler->is_enabled();
  const GradScaler::PendingStep pending = scaled ? scaler->begin_step(optimizer) : GradScaler::PendingStep{};
  const std::vector<GradientEntry> entries = collect_gradients(optimizer);

  FusedStepResult done{.grad_norm = std::numeric_limits<double>::quiet_NaN()};
  bool finite = !pending.nonfinite.value_or(false) && !options.found_inf;
  const GradientTotal all =
      options.measure ? options.measure() : GradientTotal{.gradients = static_cast<int64_t>(entries.size())};
  if (all.gradients > 0) {
    const bool unchecked = scaled ? !pending.nonfinite : options.check_finite;
    if (options.max_norm || unchecked) {
      const double norm =
          std::sqrt(options.measure ? all.square_sum : gradient_square_sum(optimizer, entries));
      // Where unscale_() has multiplied by an infinite 1 / scale, its verdict is of the gradients before that.
      const bool judged_before = pending.underflow && pending.nonfinite;
      finite = finite && (judged_before || std::isfinite(norm));
      done.grad_norm = norm * static_cast<double>(pending.inverse_scale);
    }
    done.result = !finite             ? StepResult::skipped_nonfinite
                  : pending.underflow ? StepResult::skipped_underflow
                                      : StepResult::stepped;
  }
  if (done.result == StepResult::stepped) {
    if (options.max_norm) done.clip_factor = clip_factor(*options.max_norm, done.grad_norm);
    apply_gradients(optimizer, entries, pending.inverse_scale, static_cast<float>(done.clip_factor));
  } else if (is_skipped(done.result)) {
    unscale_gradients(optimizer, pending.inverse_scale, {.allow_half = true, .verdict = false});
  }
  if (scaled) scaler->end_step(optimizer, done.result);
  return done;
}

}  // namespace ulp::amp
