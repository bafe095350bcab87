// What pruning does while a trainer works.
#pragma once

#include <memory>

#include "ulp/base/error.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/pruner.h"
#include "ulp/prune/structured/regularize.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

/// Draws a pruner's masks before the steps of a trainer. The trainer's model is the pruner's, or holds `form`, another form of it.
class PrunesWhileTraining final : public train::StepObserver {
 public:
  /// Throws ulp::Error where the training ends before the schedule does: the amount would not be reached.
  PrunesWhileTraining(prune::Pruner& pruner, train::Trainer& trainer, graph::GraphModule* form = nullptr)
      : pruner_(pruner), trainer_(trainer), form_(form) {
    const int64_t last = pruner.recipe().schedule.last();
    if (last >= trainer.total_steps())
      fail("app.PrunesWhileTraining", "expected a schedule within the ", trainer.total_steps(),
           " steps of training, got one that goes on to step ", last);
  }
  void begin(int64_t step, double) override {
    if (!pruner_.step(step)) return;
    if (form_ != nullptr) prune::share_masks(*form_, pruner_.module());
    trainer_.hold_masks();
  }
  void gradients(const torch::nn::Module&, double scale) override { pruner_.after_backward(scale); }

 private:
  prune::Pruner& pruner_;
  train::Trainer& trainer_;
  graph::GraphModule* form_;
};

/// Adds a penalty on channels, heads and neurons to the gradients of a trainer's model.
class PenalizesWhileTraining final : public train::StepObserver {
 public:
  PenalizesWhileTraining(std::shared_ptr<graph::GraphModule> model, prune::Groups groups,
                         const prune::RegularizeOptions& options, const train::Trainer& trainer)
      : regularizer_(std::move(model), std::move(groups), options),
        every_(options.penalty == prune::Penalty::growing ? kGrowthSteps : trainer.steps_per_epoch()) {}
  void begin(int64_t step, double) override {
    if (step > 0 && step % every_ == 0) regularizer_.update();
  }
  void gradients(const torch::nn::Module&, double scale) override { regularizer_.add_to_gradients(scale); }

 private:
  static constexpr int64_t kGrowthSteps = 10;  // between updates, as Wang et al. 2021

  prune::Regularizer regularizer_;
  int64_t every_;
};

}  // namespace ulp::app
