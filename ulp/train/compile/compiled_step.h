// A training step that is compiled once and then runs without LibTorch: forward, backward and update as one plan.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/train/compile/loss_function.h"

namespace ulp::train {

/// The type that products of matrices round their sides to; their sums, and all else, are fp32.
enum class ProductType : uint8_t { fp32, bf16 };

/// How a step is compiled.
struct CompileOptions {
  int64_t max_batch =
      0;  ///< memory is made for so many samples; a larger batch makes more when it comes. 0: the first one's
  std::optional<double> max_norm = std::nullopt;  ///< as amp::FusedStepOptions has it
  bool check_finite = false;                      ///< gradients that are not finite skip the update
  /// Dropout draws from counters of this seed, the number of the optimizer's step and the place in the network: the same in a
  /// resumed run, and not LibTorch's numbers. Without one, dropout with p > 0 is refused in train mode.
  std::optional<uint64_t> dropout_seed = std::nullopt;
  /// How many threads compute, the calling one among them, with those that engines and steps of the process
  /// have together: idle ones take pieces of instructions of more than some 25 microseconds. 0: as many as
  /// cores that the process may use. 1: the calling thread alone. At most 1024. The bits are the same for any
  /// number.
  int threads = 0;
  /// Products in bf16 are about twice as fast on processors that have them; each is within 2^-8 of the sum of the sizes of its terms.
  /// Parameters, activations, gradients and the update are fp32, so no loss is scaled.
  ProductType products = ProductType::fp32;
};

/// A network, a loss and an optimizer rule as one list of kernel calls over one block of memory, in fp32 or with
/// products in bf16, small instructions on the calling thread. After the first step of a batch size (or of a larger one) it allocates nothing and calls no operator of LibTorch.
///
/// Parameters are those of the graph and are updated where they are; moments and numbers of steps are the
/// optimizer's, which may be saved, loaded and given other learning rates between steps. Results are the same
/// bits in every run, on every instruction set and any number of threads; beside LibTorch's they differ by
/// rounding, as sums have another order (docs/compiled-training.md). One call at a time.
class ULP_API CompiledStep {
 public:
  /// Moved from, only to be assigned or destroyed.
  CompiledStep(CompiledStep&&) noexcept;
  CompiledStep& operator=(CompiledStep&&) noexcept;
  ~CompiledStep();

  /// One step on the samples of `inputs`, one tensor for each input of the graph, dense, of float32 or int64
  /// as captured. `targets`: of the result's sizes, or for classes int64 [rows], of images [N, C, H, W] int64
  /// [N, H, W]; undefined for LossFunction::none(). `weights`: float32 [rows], for weighted_cross_entropy
  /// alone. Gives the loss before the update. In train mode the running statistics of batch norm move. Throws
  /// Error for other tensors and for classes out of range, for one number a channel under batch norm in train
  /// mode, and where a parameter has other sizes, hooks or another requires_grad than when the step was
  /// compiled, or the optimizer other parameters; then no weight, no buffer and no state has changed.
  float step(const std::vector<at::Tensor>& inputs, const at::Tensor& targets = {},
             const at::Tensor& weights = {});
  /// Makes one step for a graph of one input.
  float step(const at::Tensor& input, const at::Tensor& targets);
  /// Makes one step on memory of the caller's, row-major, for a graph of one input of floats; `batch`
  /// samples, 1 for a graph that was captured without a batch.
  float step(const float* input, const float* targets, int64_t batch);
  /// Makes one step for losses of classes.
  float step(const float* input, const int64_t* classes, int64_t batch);
  /// Makes one step with a weight of each row.
  float step(const float* input, const int64_t* classes, const float* weights, int64_t batch);
  /// And for any inputs: floats or int64, as the graph takes them; `weights` as the loss has them, else null.
  float step(std::span<const void* const> inputs, const void* targets, const float* weights, int64_t batch);

  /// The forward and backward pass of a step alone, with the same checks: gradient() has what apply() then
  /// uses. No weight and no state changes; running statistics of batch norm do, as in the network's own
  /// forward. Gives the loss.
  float backward(const std::vector<at::Tensor>& inputs, const at::Tensor& targets = {},
                 const at::Tensor& weights = {});
  float backward(std::span<const void* const> inputs, const void* targets, const float* weights,
                 int64_t batch);
  /// Makes forward and backward of one of several batches of a step: `share` times its gradients are added to those since the
  /// last update, of which apply() makes the update; at most 4,096 batches. Dropout draws other numbers for each. Gives the loss of the batch. Throws as
  /// step() does, and the sum stays what it was.
  float accumulate(const std::vector<at::Tensor>& inputs, const at::Tensor& targets, double share,
                   const at::Tensor& weights = {});
  /// Forgets the gradients since the last update: the next accumulate() is the first of its step.
  void zero_grad();
  /// The update of a step from the gradients of the last backward(), which may have been changed where they
  /// are. Throws Error where there was none since the last update, and as step() does.
  const amp::FusedStepResult& apply();

  /// The result of the network as it is now, in the mode in which it was compiled, with the dropout of the
  /// next step: `result` holds result_size(batch) numbers. Changes nothing: in train mode batch norm takes
  /// the statistics of this batch and leaves its running ones. Allocates as step() does.
  void forward(const float* input, int64_t batch, float* result);
  /// Computes the result for any inputs.
  void forward(std::span<const void* const> inputs, int64_t batch, float* result);
  /// How many numbers the result of so many samples has.
  int64_t result_size(int64_t batch) const;

  /// The loss of the last step.
  float loss() const;
  /// The optimizer's part of the last step; grad_norm is measured with max_norm or check_finite alone.
  const amp::FusedStepResult& update() const;
  /// The gradient of a parameter, as the last step left it, before clipping; the tensor stays the same one. Throws Error for a
  /// tensor without one.
  at::Tensor gradient(const at::Tensor& parameter) const;
  /// Gives the gradient, or an undefined tensor for a parameter without one.
  at::Tensor find_gradient(const at::Tensor& parameter) const;
  /// Bytes of the block that holds activations and their gradients.
  int64_t arena_bytes() const;
  /// How many kernel calls a step is, without the update.
  size_t instruction_count() const;

 private:
  friend ULP_API CompiledStep compile(const std::shared_ptr<graph::GraphModule>& module,
                                      const LossFunction& loss, amp::FusedOptimizer& optimizer,
                                      const CompileOptions& options);
  struct Parts;
  explicit CompiledStep(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// Compiles the training step of a captured network in its present mode. The optimizer must outlive the
/// result; parameters that it does not have are not trained. Throws Error for what a compiled step does not
/// take, naming the node: operators (compiled_operators()), types other than float32, free dimensions,
/// dropout without a seed, hooks on parameters, and where the system gives no threads. Nothing has changed
/// then.
ULP_API CompiledStep compile(const std::shared_ptr<graph::GraphModule>& module, const LossFunction& loss,
                             amp::FusedOptimizer& optimizer, const CompileOptions& options = {});

/// The operators that compile() knows, "aten::linear" and so on, in alphabetical order.
ULP_API std::vector<std::string> compiled_operators();

}  // namespace ulp::train
