// From gradients to an update: the optimizer, the loss scaler and clipping of one run. Internal to the room.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>

#include "ulp/amp/grad_scaler.h"
#include "ulp/io/checkpoint.h"
#include "ulp/train/train_options.h"

namespace ulp::train {

/// What became of the gradients.
struct Update {
  amp::StepResult result = amp::StepResult::stepped;
  std::optional<double> grad_norm = {};
};

class Stepper {
 public:
  Stepper(torch::nn::Module& model, const TrainOptions& options);
  ~Stepper();

  double scale() const { return scaler_.get_scale(); }
  void set_learning_rate(double rate);
  void zero_grad();
  /// Adds the gradients of loss / of to those that are there.
  void backward(const at::Tensor& loss, int64_t of);
  /// Uses the gradients.
  Update step();

  /// Fills in the parts that belong to it, or points to where a checkpoint is to put them.
  void add_to(io::CheckpointParts& parts);
  /// After a checkpoint has been read into parts that add_to() had filled in.
  void restore(const io::CheckpointParts& parts);

 private:
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  amp::GradScaler scaler_;
  std::optional<double> clip_;
};

}  // namespace ulp::train
