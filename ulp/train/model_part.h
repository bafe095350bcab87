// The part of a model that one of several processes trains, as the training loop sees it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/base/export.h"

namespace ulp::train {

/// A sharded model (Task::parted): split layers, or a stage of a pipeline. All processes call the same
/// functions in the same order.
struct ULP_API ShardedModel {
  std::shared_ptr<torch::nn::Module> whole;  ///< the task's model before
  std::string stages = {};                   ///< of a pipeline, for checkpoints: JSON

  virtual ~ShardedModel();
  virtual bool is_pipeline() const = 0;
  /// Runs forward and backward of a batch in a pipeline, as distributed::Pipeline::step().
  virtual double step(
      const std::vector<at::Tensor>& inputs, const at::Tensor& targets,
      const std::function<at::Tensor(const at::Tensor& output, const at::Tensor& targets)>& loss,
      double scale) = 0;

  /// Parameters that no other process counts.
  virtual std::vector<at::Tensor> own_parameters() const = 0;
  /// Computes the norm of the gradients of all processes (distributed::total_gradients).
  virtual amp::GradientTotal total_gradients() const = 0;

  /// The whole model on rank 0, null on the others.
  virtual torch::nn::Module* root() const = 0;
  /// Writes all processes' weights into the whole model of rank 0.
  virtual void gather() const = 0;
  /// Gathers an optimizer's state: `state` is one of the whole model's parameters on rank 0, null on the
  /// others.
  virtual void gather(const amp::FusedOptimizer& own, amp::FusedOptimizer* state) const = 0;
  /// Takes this process's weights from the whole model, which every process has.
  virtual void scatter() const = 0;
  virtual void scatter(const amp::FusedOptimizer& state, amp::FusedOptimizer& own) const = 0;
};

/// The entry of a checkpoint's configuration that holds ShardedModel::stages.
inline constexpr const char* kStagesEntry = "stages";

}  // namespace ulp::train
