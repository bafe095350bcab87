// What the training loop calls of components that it is also linked without. Internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/base/component.h"
#include "ulp/io/safetensors.h"
#include "ulp/train/task.h"
#include "ulp/train/train_options.h"

namespace ulp::train {

/// The optimizer of this process's share of masters and moments (distributed::ShardedOptimizer).
class OptimizerShare {
 public:
  virtual ~OptimizerShare() = default;
  virtual amp::FusedOptimizer& optimizer() = 0;
  virtual void zero_grad() = 0;
  virtual amp::FusedStepResult step(amp::GradScaler* scaler, const amp::FusedStepOptions& options) = 0;
  virtual std::unique_ptr<amp::FusedOptimizer> gather() const = 0;
  virtual std::unique_ptr<amp::FusedOptimizer> whole() const = 0;
  virtual void scatter(const amp::FusedOptimizer& from) = 0;
  virtual std::vector<std::string> save(const std::filesystem::path& path, int64_t step) const = 0;
  virtual void load(const std::filesystem::path& path, const std::vector<std::string>& files) = 0;
};

/// The model of one of several processes that average their gradients (distributed::DataParallel).
class ModelReplica {
 public:
  virtual ~ModelReplica() = default;
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;
  virtual void unshard() = 0;
  /// While it lives, backward adds up this process's gradients alone.
  virtual std::shared_ptr<void> no_sync() = 0;
  /// While it lives, parameters that processes share are whole.
  virtual std::shared_ptr<void> whole_parameters() = 0;
  virtual std::unique_ptr<OptimizerShare> share(const std::vector<amp::FusedGroup>& groups,
                                                uint64_t seed) = 0;
};

/// Of the room `distributed`.
struct SeveralProcesses {
  std::unique_ptr<ModelReplica> (*replica)(torch::nn::Module& model,
                                           std::shared_ptr<distributed::ProcessGroup> group,
                                           const distributed::DataParallelOptions& options);
  io::NamedTensors (*random_states)(distributed::ProcessGroup& group);
  void (*restore_random_state)(const distributed::ProcessGroup& group, const io::NamedTensors& states);
  void (*load_shards)(amp::FusedOptimizer& optimizer, const std::filesystem::path& path,
                      const std::vector<std::string>& files);
  void (*remove_other_shards)(const std::filesystem::path& path, const std::vector<std::string>& kept);
};
extern Component<SeveralProcesses> several_processes;

/// Of amp/fp8.
struct Fp8Training {
  Task (*task)(Task task, std::string_view precision);
  void (*update)(torch::nn::Module& model, const amp::AmaxReduction& reduce);
};
extern Component<Fp8Training> fp8_training;

/// Of amp/int8.
struct Int8Training {
  Task (*task)(Task task, std::string_view precision);
};
extern Component<Int8Training> int8_training;

/// Of quant/binary. A program without it has no binary layers.
struct BinaryTraining {
  std::vector<std::string> (*latent_weights)(const torch::nn::Module& model);
};
extern Component<BinaryTraining> binary_training;

/// The step of a task that forward, backward and update were compiled for.
class StepOfTask {
 public:
  virtual ~StepOfTask() = default;
  /// Forward and backward of one of `of` batches of a step, whose mean is learnt; its loss.
  virtual double backward(const TaskBatch& batch, int64_t of) = 0;
  /// Forgets the gradients that no update has used.
  virtual void zero_grad() = 0;
  /// The gradients as those of the parameters, for others to look at and to change.
  virtual void give_gradients() = 0;
  /// What they made of them.
  virtual void take_gradients() = 0;
  virtual amp::FusedStepResult apply() = 0;
};

/// Of train/compile.
struct CompiledTraining {
  Task (*task)(Task task);
  std::unique_ptr<StepOfTask> (*step)(const Task& task, const TrainOptions& options,
                                      amp::FusedOptimizer& optimizer);
};
extern Component<CompiledTraining> compiled_training;

/// Of the room `memory`.
struct ActivationPlans {
  void (*checkpoint)(graph::GraphModule& model, memory::CheckpointPlan plan);
};
extern Component<ActivationPlans> activation_plans;

}  // namespace ulp::train
