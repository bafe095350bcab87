// The step of a FusedOptimizer for gradients that stay where they are, without an allocation and on the
// threads that it is given: for training steps of a few microseconds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/base/export.h"
#include "ulp/base/parallel.h"

namespace ulp::amp {

/// A parameter of the optimizer and where its gradient will be in every step: fp32, in the parameter's layout.
struct PreparedGradient {
  at::Tensor parameter, gradient;
};

/// fused_step() without a scaler, to the same bits: rules, state, masks and learning rates are those of the optimizer, which
/// may change between steps, as may the parameters' memory; it must outlive this.
class ULP_API PreparedUpdate {
 public:
  /// Throws Error for tensors that are not parameters of the optimizer, not fp32 on the CPU or that share memory, and for
  /// an optimizer with OffloadOptions::to_host or of another device.
  PreparedUpdate(FusedOptimizer& optimizer, std::vector<PreparedGradient> gradients);
  PreparedUpdate(PreparedUpdate&&) noexcept;
  ~PreparedUpdate();

  /// Makes the state of parameters that have none, and looks at all of it; no weight changes. Throws Error for state
  /// that does not fit the parameters or the options, and for parameters that have other sizes than their gradients or share
  /// memory; then nothing has changed. apply() does the same where something has changed.
  void settle();
  /// One step; the first after a change of state allocates. `max_norm`: as FusedStepOptions has it; then, or
  /// with check_finite, gradients that are not finite skip the step. Large ones are cut for the threads of
  /// `parallel`, to the same bits; null: the calling thread alone. Throws Error as settle() does, and for a
  /// rule out of range.
  FusedStepResult apply(std::optional<double> max_norm, bool check_finite,
                        const Parallel* parallel = nullptr);
  /// The number of the next step, from 1, of the first parameter; 1 without parameters.
  int64_t next_step() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace ulp::amp
