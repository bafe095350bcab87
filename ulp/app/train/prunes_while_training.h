// What pruning does while a trainer works.
#pragma once

#include <memory>

#include "ulp/base/export.h"
#include "ulp/prune/pruner.h"
#include "ulp/prune/structured/regularize.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

/// Draws a pruner's masks before the steps of a trainer. The trainer's model is the pruner's, or holds
/// `form`, another form of it.
class ULP_API PrunesWhileTraining final : public train::StepObserver {
 public:
  /// Throws ulp::Error where the training ends before the schedule does: the amount would not be reached.
  PrunesWhileTraining(prune::Pruner& pruner, train::Trainer& trainer, graph::GraphModule* form = nullptr);
  void begin(int64_t step, double scale) override;
  void gradients(const torch::nn::Module& model, double scale) override;
  io::NamedTensors state() const override;  ///< scores of movement
  void restore(const io::NamedTensors& state) override;

 private:
  prune::Pruner& pruner_;
  train::Trainer& trainer_;
  graph::GraphModule* form_;
};

/// Adds a penalty on channels, heads and neurons to the gradients of a trainer's model.
class ULP_API PenalizesWhileTraining final : public train::StepObserver {
 public:
  PenalizesWhileTraining(std::shared_ptr<graph::GraphModule> model, prune::Groups groups,
                         const prune::RegularizeOptions& options, const train::Trainer& trainer);
  void begin(int64_t step, double scale) override;
  void gradients(const torch::nn::Module& model, double scale) override;
  io::NamedTensors state() const override;  ///< strengths of the units
  void restore(const io::NamedTensors& state) override;

 private:
  prune::Regularizer regularizer_;
  int64_t every_;
};

}  // namespace ulp::app
