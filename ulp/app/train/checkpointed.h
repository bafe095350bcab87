// Training under a plan of what it keeps: activation checkpointing, kept activations in fewer bits or in a
// file, the
// optimizer's state in files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "ulp/app/train/memory_plan.h"
#include "ulp/app/train/training_probe.h"
#include "ulp/base/export.h"

namespace ulp::app {

/// A MemoryPlan for one network, found once, so that every network of the same kind, of any batch, is trained
/// alike.
class ULP_API CheckpointChoice {
 public:
  /// For tasks that `make` makes. A budget of bytes is for batches of `size`, which are not made: costs are
  /// measured of 2 and of
  /// 4 samples. `share` in (0, 1) is a budget, too, in the place of the plan's rule: of the bytes of
  /// activations and their
  /// gradients at the peak. Throws ulp::Error where no plan keeps so little, for a network that cannot be
  /// captured, and as
  /// MemoryPlan::validate().
  CheckpointChoice(const MakeTask& make, const train::TrainOptions& options, memory::RunSize size,
                   const MemoryPlan& plan, std::optional<double> share = {});
  ~CheckpointChoice();

  /// Such a task trains by the plan from now on.
  void apply(train::Task& task) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace ulp::app
