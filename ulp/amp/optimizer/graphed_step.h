// A whole training step of static shapes as one CUDA graph: forward, backward, loss scaling and the update.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "ulp/amp/optimizer/capturable_step.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// Records work on a device, and repeats it.
class ULP_API GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  /// Does work that will be recorded later, where it will be recorded: CUDA graphs have a stream of their
  /// own.
  virtual void warm_up(const std::function<void()>& work) { work(); }
  /// Records what `work` starts on the device, without doing it. What it throws is thrown on, and nothing is
  /// recorded then.
  virtual void capture(const std::function<void()>& work) = 0;
  /// Does it, on the device's current stream.
  virtual void replay() = 0;
};

/// at::cuda::CUDAGraph. Throws Error in builds against a LibTorch without CUDA.
ULP_API std::unique_ptr<GraphRecorder> make_cuda_graph(c10::Device device);

/// Training steps of which all but the first few are replays of one CUDA graph.
///
///   CapturableStep update(optimizer, &scaler);
/// GraphedStep step(optimizer, update, [&](const auto& inputs) { return loss(model->forward(inputs[0]),
/// inputs[1]); });
///   for (...) step.run({x, y});
///   update.finish();
///
/// The loss must be made by work on the device alone, which does not depend on the values of tensors (no
/// .item()), and its autocast begins and ends inside it. Gradients belong to the graph: zero_grad() is not
/// called.
class ULP_API GraphedStep {
 public:
  using Loss = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;
  /// All must outlive this. `warm_up` >= 1 steps run as they are before the one that is recorded: kernels are
  /// chosen, libraries loaded and state made in them. `graph`: null for make_cuda_graph(). Throws Error where
  /// that does.
  GraphedStep(FusedOptimizer& optimizer, CapturableStep& update, Loss loss, int warm_up = 3,
              std::unique_ptr<GraphRecorder> graph = nullptr);

  /// One training step. Returns its loss, unscaled: a tensor that the next step overwrites. Throws Error for
  /// inputs of other sizes, types or devices than the first ones; a step that cannot be recorded throws what
  /// it threw.
  at::Tensor run(const std::vector<at::Tensor>& inputs);
  /// Whether the next run() is a replay.
  bool is_captured() const { return captured_; }

 private:
  void take(const std::vector<at::Tensor>& inputs);
  void work();

  FusedOptimizer& optimizer_;
  CapturableStep& update_;
  Loss loss_function_;
  int warm_up_, runs_ = 0;
  std::unique_ptr<GraphRecorder> graph_;
  std::vector<at::Tensor> inputs_;
  at::Tensor loss_;
  bool captured_ = false;
};

}  // namespace ulp::amp
