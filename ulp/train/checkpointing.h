// A training run that saves itself as it goes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "ulp/base/export.h"
#include "ulp/train/trainer.h"

namespace ulp::train {

/// Where and how often a run saves itself.
struct Checkpointing {
  std::filesystem::path path = {};  ///< empty: nowhere
  int64_t every = 0;                ///< steps between checkpoints; 0: once an epoch
  bool resume = false;              ///< continue from `path` if it is there
  /// Called before each checkpoint: keeps what the run reads and a checkpoint does not hold.
  std::function<void()> before = {};
  bool in_shares = false;  ///< each process writes its share of the optimizer's state itself

  /// The file that the run goes on from; empty where it starts.
  std::filesystem::path resumed() const {
    return resume && std::filesystem::exists(path) ? path : std::filesystem::path();
  }
};

/// Takes up what `path` holds, if that was asked for and there is such a file. Throws as Trainer::resume().
ULP_API void resume_from(Trainer& trainer, const Checkpointing& saving);

/// Steps to the end, `on_step` after each. Ctrl-C ends it after the step that is running, with a checkpoint, and throws
/// Interrupted.
ULP_API void run_to_end(Trainer& trainer, const Checkpointing& saving,
                        const std::function<void(const StepInfo& info)>& on_step);

}  // namespace ulp::train
