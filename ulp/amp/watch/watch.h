// NumericsWatch: what low precision does to a training run, op by op and gradient by gradient.
//
//   ulp::amp::NumericsWatch watch(*model);
//   for (...) {
//     auto step = watch.begin_step(scaler.get_scale());
//     loss = ...; scaler.scale(loss).backward();
//     step.gradients();                     // after backward, before unscaling and clipping
//     auto result = scaler.step(optimizer);
//     step.end(result);
//     std::cout << watch.line();
//   }
//
// One step in `every` is sampled. In a sampled step a callback of LibTorch's profiler interface looks at the
// result of each top-level op, and each gradient is read once. Between sampled steps there is no callback and
// no work besides noting the scale and the verdict. Nothing is changed: the numbers of the run are the same
// with and without a watch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ulp/amp/watch/watch_summary.h"
#include "ulp/base/export.h"

namespace torch::nn {
class Module;
}

namespace ulp {
class FieldVisitor;
}

namespace ulp::amp {

/// Options of a watch: what it looks at, and how often.
struct ULP_API WatchOptions {
  std::string format = "fp16";  ///< the number format that values are held against
  int64_t every = 32;           ///< steps from one sampled step to the next; the first step is sampled
  bool ops = true;              ///< look at the results of ops, not at gradients only
  int64_t op_stride = 1;        ///< look at every n-th op only, at others in the next sampled step
  double margin = 2;            ///< binades of headroom that the advised scale leaves

  /// Every field with its limits; the first two have flags.
  void visit_fields(FieldVisitor& visitor);
  /// An error names the field that is out of its range.
  void validate() const;
};

/// Tensors with the names they are reported by.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Looks at gradients and the results of ops while a model trains. See the example above.
class ULP_API NumericsWatch {
 public:
  class Step;

  /// Watches the parameters of `module`. Ops are named by module path, told from the parameters they read;
  /// what a GraphModule runs is named by node, too.
  explicit NumericsWatch(torch::nn::Module& module, const WatchOptions& options = {});
  /// Watches any tensors that get gradients: for training code without a module.
  explicit NumericsWatch(NamedTensors parameters, const WatchOptions& options = {});
  ~NumericsWatch();
  NumericsWatch(const NumericsWatch&) = delete;
  NumericsWatch& operator=(const NumericsWatch&) = delete;

  /// Starts a step whose loss is multiplied by `scale`. Sampled if it is its turn, if the step before was
  /// skipped, or after arm(). A step may hold several forward and backward passes (accumulation). `number`
  /// is what the step is called in results, as in a continued run; by default steps are counted from 0. An
  /// error while another step is open, here or (sampled ones) anywhere on this thread.
  [[nodiscard]] Step begin_step(double scale = 1.0, std::optional<int64_t> number = std::nullopt);

  /// The next step will be sampled.
  void arm();

  const WatchSummary& summary() const;

  /// One line on the last sampled step: "fp16: underflow 12.4 % -> 0.3 % at scale 2^16, headroom 4.2 binades,
  /// advised scale 2^18".
  std::string line() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One step, from begin_step() to end() on one thread. Destroyed without end() (an exception), it leaves no
/// callback behind and the step is not counted.
class ULP_API NumericsWatch::Step {
 public:
  ~Step();
  Step(Step&& other) noexcept;
  Step& operator=(Step&&) = delete;

  bool sampled() const;
  /// Call after backward, before anything changes the gradients: stops looking at ops and, in a sampled
  /// step, reads the gradients.
  void gradients();
  /// Ends the step. After skipped_nonfinite the gradients are searched for the cause, sampled or not; where
  /// all of them are finite, a `loss` that is not is the cause.
  void end(StepResult result = StepResult::stepped, double loss = 0);

 private:
  friend class NumericsWatch;
  explicit Step(State& state);
  State* state_;
};

}  // namespace ulp::amp
