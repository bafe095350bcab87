// The step of a FusedOptimizer on a device without a word from the host: scale, verdict, clip factor and
// counts of steps stay there, so that a CUDA graph can hold all of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// Options of a CapturableStep.
struct CapturableOptions {
  std::optional<double> max_norm = std::nullopt;  ///< > 0: gradients are scaled down to this global 2-norm
  bool check_finite = false;                      ///< look for inf and NaN without a scaler, too
};

/// The state of a CapturableStep after its last step.
struct CapturableState {
  bool found_inf = false;  ///< a gradient of the last step was inf or NaN
  bool skipped = false;    ///< the last step changed nothing
  double scale = 1;        ///< of the next step; 1 without a scaler
  double grad_norm = 0;    ///< of the last step, unscaled; NaN where it was not measured
};

/// fused_step() and GradScaler::update() in one, to the same bits, by kernels on the device
/// (DeviceUpdate::kernels). The host waits for nothing:
///
///   CapturableStep step(optimizer, &scaler);
///   for (...) {
///     optimizer.zero_grad();
///     step.scale(loss(...)).backward();
///     step.step();
///   }
///   step.finish();   // brings counts, scale and growth tracker to the optimizer and the scaler
///
/// Between the first step() and finish() the optimizer and the scaler are not to be used otherwise, nor a
/// checkpoint to be written; learning rates may change. Gradients are left scaled, after a skipped step too.
/// Every step has gradients for the same parameters. Not for use from several threads at once.
class ULP_API CapturableStep {
 public:
  /// `scaler` may be null or disabled; it and the optimizer must outlive this. Throws Error for an optimizer
  /// whose update is not by kernels on its device, and for scalers of other dialects than pytorch, keras and
  /// static.
  explicit CapturableStep(FusedOptimizer& optimizer, GradScaler* scaler = nullptr,
                          const CapturableOptions& options = {});
  ~CapturableStep();
  CapturableStep(const CapturableStep&) = delete;
  CapturableStep& operator=(const CapturableStep&) = delete;

  /// loss * scale, fp32 for one without dimensions. Throws Error for losses that are not floating-point
  /// numbers on the optimizer's device.
  at::Tensor scale(const at::Tensor& loss) const;
  /// One step with the gradients as they are. Throws Error for gradients that fused_step() refuses, and where
  /// other parameters have one than in the first step; none at all is no step.
  void step();

  /// From here to end_capture(), step() is called while a CUDA graph records: kernels are recorded, and
  /// addresses noted. Throws Error before the first step(), which makes the state.
  void begin_capture();
  /// Brings the noted addresses to where the recorded kernels read them: from now on the graph can be
  /// replayed.
  void end_capture();
  /// Brings the learning rates of today to the device: before a replay that follows a change of one.
  void refresh();

  /// Waits for the device.
  CapturableState read() const;
  /// Waits for the device, and makes optimizer and scaler what they would be after the same steps with
  /// fused_step(). The next step() starts from them.
  void finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace ulp::amp
