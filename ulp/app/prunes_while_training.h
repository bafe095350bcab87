// Masks that are drawn while a trainer works.
#pragma once

#include "ulp/prune/pruner.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

/// Draws a pruner's masks before the steps of a trainer. The trainer's model is the pruner's.
class PrunesWhileTraining final : public train::StepObserver {
 public:
  PrunesWhileTraining(prune::Pruner& pruner, train::Trainer& trainer) : pruner_(pruner), trainer_(trainer) {}
  void begin(int64_t step, double) override {
    if (pruner_.step(step)) trainer_.hold_masks();
  }
  void gradients(const torch::nn::Module&, double) override { pruner_.after_backward(); }

 private:
  prune::Pruner& pruner_;
  train::Trainer& trainer_;
};

}  // namespace ulp::app
