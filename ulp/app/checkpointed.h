// Training under activation checkpointing, as a change to a run that must fit a budget.
#pragma once

#include <cstdint>
#include <memory>

#include "ulp/app/model_file.h"
#include "ulp/app/training_probe.h"
#include "ulp/base/export.h"

namespace ulp::app {

/// What is computed again in a network's backward pass, so that every network of the same kind can be given
/// it.
class ULP_API CheckpointChoice {
 public:
  /// Activations and their gradients take a share in (0, 1) of their bytes at the peak, in the least time.
  /// `batch` is one of the network, of any size. Throws ulp::Error where no plan keeps so little.
  CheckpointChoice(const Network& network, const ModelSpec& spec, const train::TaskBatch& batch,
                   const amp::Precision& precision, double share);
  ~CheckpointChoice();

  /// The network as a graph under this plan; tensors are shared.
  Network apply(const Network& network, const ModelSpec& spec) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace ulp::app
