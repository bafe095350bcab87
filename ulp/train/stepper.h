// From gradients to an update: the optimizer, the loss scaler, clipping and the schedule of one run. Internal
// to the room.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/optimizer/schedule.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/io/checkpoint.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/train/components.h"
#include "ulp/train/model_part.h"
#include "ulp/train/train_options.h"

namespace ulp::train {

/// What became of the gradients.
struct Update {
  amp::StepResult result = amp::StepResult::stepped;
  std::optional<double> grad_norm = {};
};

/// A step is amp::fused_step() where masters, clipping or masks ask for it, and LibTorch's optimizer otherwise.
class Stepper {
 public:
  /// Of the task it takes the model, the masks, where state is kept and the parts that processes have.
  /// `replica` is null for a single process and for parts.
  Stepper(const Task& task, const TrainOptions& options, int64_t total_steps, ModelReplica* replica);
  ~Stepper();

  /// Keeps what the masks prune where it is, from now on.
  void hold_masks(const torch::nn::Module& model);

  double scale() const { return scaler_.get_scale(); }
  /// Whether losses are scaled: gradients that are not finite skip the step then.
  bool scales() const { return scaler_.is_enabled(); }
  double learning_rate() const { return peak_rate_ * schedule_.factor(); }
  /// From now on step() is that of a compiled step for fused().
  void use(StepOfTask* compiled) { compiled_ = compiled; }
  /// Null where LibTorch's optimizer steps, or shares of one.
  amp::FusedOptimizer* fused() { return fused_; }
  void zero_grad();
  /// Adds the gradients of loss / of to those that are there.
  void backward(const at::Tensor& loss, int64_t of);
  /// What those who run backward themselves multiply a loss with: one of so many losses of a step.
  double loss_factor(int64_t of);
  /// Uses the gradients; skipped steps do not advance the schedule. `found_inf`: the loss is not finite, and
  /// the step is skipped as for a gradient with inf or NaN, also where all of them are finite.
  Update step(bool found_inf = false);

  /// Fills in what a checkpoint must hold of it, and points to what is to be filled in on loading. All
  /// processes that train together call it; only the first one has all that is to be saved. `in_shares`: but
  /// for what save_shares() writes.
  void add_to(io::CheckpointParts& parts, bool saving, bool in_shares = false);
  /// Each process's share of the optimizer's state, to files beside `path`; their names. None where nothing
  /// is shared.
  std::vector<std::string> save_shares(const std::filesystem::path& path, int64_t step) const;
  /// The checkpoint that add_to() was for has been written.
  void saved() { whole_.reset(); }
  /// After a checkpoint has been read into parts that add_to() had filled in. `path` words errors.
  /// `shares` are names of save_shares(), if the checkpoint has some.
  void restore(const io::CheckpointParts& parts, const std::filesystem::path& path,
               const std::vector<std::string>& shares);

 private:
  amp::StepResult torch_step(bool found_inf);
  std::vector<prune::ParameterMask> masks_of(const torch::nn::Module& model) const;
  void clip_latent_weights();
  /// Of the model of which this process has a part: an optimizer without state.
  std::unique_ptr<amp::FusedOptimizer> optimizer_of_whole() const;
  /// The schedule's state for an optimizer of so many groups, which all have one rate.
  amp::ScheduleState schedule_of(size_t groups, amp::ScheduleState state) const;

  std::vector<prune::ParameterMask> masks_;
  std::vector<at::Tensor> latent_;  ///< of binary layers: without weight decay, in [-1, 1] after each step
  std::unique_ptr<OptimizerShare> sharded_;  // null: every process has all of the state
  std::shared_ptr<ShardedModel> parted_;     // null: this process has all of the model
  TrainOptions options_;
  std::unique_ptr<amp::FusedOptimizer> whole_;    // of shares or parts, while a checkpoint is written or read
  std::unique_ptr<torch::optim::Optimizer> own_;  // null with sharded_
  torch::optim::Optimizer* optimizer_;
  amp::FusedOptimizer* fused_ = nullptr;  // optimizer_, if it is one
  StepOfTask* compiled_ = nullptr;        // null: fused_step() or LibTorch's
  amp::GradScaler scaler_;
  std::optional<double> clip_;
  std::function<amp::GradientTotal()> measure_;
  double peak_rate_;
  amp::LearningRateSchedule schedule_;
};

}  // namespace ulp::train
