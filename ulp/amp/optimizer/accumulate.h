// Gradient accumulation: one optimizer step over several micro-batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ulp/base/export.h"

namespace ulp::amp {

/// Counts the micro-batches of an optimizer step and divides their losses, so that the gradients add up to
/// those of the mean loss over all of them. Between the first and the last there is nothing but forward and
/// backward: no step, no update of the loss scale, nothing read back from a device.
///
///   GradientAccumulator accumulator(4);
///   for (const Batch& batch : batches) {
///     if (accumulator.is_first()) optimizer.zero_grad();
///     scaler.scale(accumulator.normalize(loss_of(batch))).backward();
///     if (accumulator.is_last()) {
///       schedule.advance(scaler.step(optimizer));
///       scaler.update();
///     }
///     accumulator.advance();
///   }
///
/// An inf or NaN of any micro-batch stays in the sum, so it skips the one step. Save checkpoints while
/// is_first(): gradients are not part of them.
class ULP_API GradientAccumulator {
 public:
  /// `micro_batches` >= 1.
  explicit GradientAccumulator(int64_t micro_batches);

  /// loss / micro_batches, in the graph of `loss`, which is the mean over a micro-batch. Integer and
  /// undefined tensors are errors.
  at::Tensor normalize(const at::Tensor& loss) const;

  /// The next micro-batch starts a step: gradients are cleared before it.
  bool is_first() const { return position_ == 0; }
  /// The next micro-batch ends a step: the optimizer steps (and processes synchronise) after it.
  bool is_last() const { return position_ + 1 == micro_batches_; }
  /// To be called once after each micro-batch.
  void advance();

  /// The step that starts now has another number of micro-batches than the last one, for instance at the end
  /// of an epoch. An error in the middle of a step.
  void begin(int64_t micro_batches);
  int64_t micro_batches() const { return micro_batches_; }

 private:
  int64_t micro_batches_ = 1;
  int64_t position_ = 0;
};

}  // namespace ulp::amp
