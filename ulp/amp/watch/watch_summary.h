// The results of a NumericsWatch, for printing and for reports.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/amp/fp8/fp8_tensor.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/amp/watch/format_range.h"
#include "ulp/base/export.h"
#include "ulp/kernels/training/exponent_stats.h"

namespace ulp::amp {

/// Where in a step an operation ran.
enum class Pass : uint8_t { forward, backward };

/// Which operation produced a tensor.
struct OpLocation {
  Pass pass = Pass::forward;
  std::string op = {};    ///< "aten::conv2d"; in the backward pass what ran: "aten::convolution_backward"
  std::string path = {};  ///< "layer1.0.conv1"; empty where it could not be told
  std::string node = {};  ///< name in the GraphModule, if it was one
  std::string autograd_node = {};  ///< backward: "ConvolutionBackward0"
  int32_t occurrence = 0;          ///< of the same call within a step, from 0
  int32_t output = 0;              ///< which of the op's tensors

  /// "aten::conv2d in layer1.0.conv1"
  ULP_API std::string describe() const;
  bool operator==(const OpLocation&) const = default;
};

/// The values of one op output over all sampled steps; those of the backward pass divided by the loss scale.
struct OpStats {
  OpLocation place = {};
  c10::ScalarType dtype = c10::kFloat;
  kernels::ExponentStats stats = {};
};

/// One parameter's gradient over all sampled steps, divided by the loss scale.
struct GradientStats {
  std::string name = {};
  kernels::ExponentStats stats = {};
};

/// The first value of a step that is not finite.
struct NonFinite {
  int64_t step = 0;
  OpLocation place = {};
  std::vector<int64_t> index = {};  ///< of the value in the tensor
  double value = 0;
  bool inputs_finite = true;  ///< false: the op got such values and only passed them on

  /// "forward: aten::div in head, output [3, 7] is inf, from finite inputs"
  ULP_API std::string describe() const;
};

/// One tensor of an fp8 layer over all sampled steps: what its 8-bit (or 4-bit) form did to it.
struct Fp8TensorStats {
  std::string layer = {};
  Fp8Role role = Fp8Role::input;
  std::string format = {};
  int64_t elements = 0, nonzero = 0;
  int64_t saturated = 0;  ///< rounded past the format's largest number, infinities too
  int64_t flushed = 0;    ///< not zero, and became zero
  int64_t nonfinite = 0;
  /// One a sampled step: the scale that was used (of blocks the smallest) and the largest finite magnitude.
  struct Point {
    int64_t step = 0;
    double scale = 1, amax = 0;
  };
  std::vector<Point> history = {};

  /// Shares of the values that are not zero.
  double saturated_share() const { return share(saturated); }
  double flushed_share() const { return share(flushed); }

 private:
  double share(int64_t count) const {
    return nonzero == 0 ? 0 : static_cast<double>(count) / static_cast<double>(nonzero);
  }
};

/// All gradients of one sampled step.
struct GradientSample {
  int64_t step = 0;
  double scale = 1;                ///< loss scale of the step
  Shares before = {}, after = {};  ///< shares lost in the watched format without and with the scale
  double amax = 0;                 ///< largest magnitude, divided by the scale
  double zeros = 0;                ///< share of all values that are exactly zero
  int64_t nonfinite = 0;           ///< values that are not finite
  double headroom = 0;             ///< binades between the scaled amax and the format's largest number
  double advised_scale = 1;        ///< from all gradients seen so far; see FormatRange::advise
};

/// One step, sampled or not.
struct StepRecord {
  int64_t step = 0;
  double scale = 1;
  StepResult result = StepResult::stepped;
};

/// A step that was not taken, and why.
struct SkippedStep {
  int64_t step = 0;
  double scale = 1;
  std::string cause = {};  ///< "gradient of fc.weight: inf at [3, 7]; 2 of 9 gradients are not finite"
};

/// Everything that a watch has seen so far.
struct WatchSummary {
  explicit WatchSummary(const FormatRange& range) : range(range) {}

  FormatRange range;
  std::vector<OpStats> ops;  ///< in the order they first ran
  std::vector<GradientStats> gradients;
  kernels::ExponentStats all_gradients;  ///< of all parameters, divided by the loss scale
  std::vector<Fp8TensorStats> fp8;       ///< of fp8 layers, in the order they were first quantized
  std::vector<GradientSample> samples;
  std::vector<StepRecord> steps;
  std::vector<SkippedStep> skipped;
  std::vector<NonFinite> nonfinite;  ///< at most one a sampled step, and at most 1,000

  /// The loss scale of the last step; 1 before the first.
  double last_scale() const { return steps.empty() ? 1.0 : steps.back().scale; }
};

}  // namespace ulp::amp
