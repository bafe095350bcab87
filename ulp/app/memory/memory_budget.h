// Fits a training run into a budget of memory: what is changed, and what it costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/app/train/training_probe.h"
#include "ulp/base/export.h"
#include "ulp/train/train_options.h"

namespace torch::nn {
class Module;
}

namespace ulp::app {

/// A run that must fit.
struct BudgetJob {
  TrainingProgram program = {};
  /// The program with a share of the activations kept and the rest recomputed; nothing where no plan keeps
  /// so little. Empty: the network is not checkpointed.
  std::function<std::optional<TrainingProgram>(double share)> checkpointed = {};
  train::TrainOptions options = {};
  int64_t budget = 0;                   ///< bytes of live tensors
  int64_t taken = 0;                    ///< of them, by what is there already, such as the data set
  bool keep_masters = false;            ///< the caller chose them
  bool keep_moments = false;            ///< the caller chose them
  bool batch_norm = false;              ///< statistics of smaller batches are other ones
  std::function<void()> progress = {};  ///< called before each small run; may be empty
};

/// How it fits.
struct BudgetChoice {
  train::TrainOptions options = {};
  int64_t asked_bytes = 0;       ///< predicted peak of the run as it was asked for
  int64_t predicted_bytes = 0;   ///< and of the one chosen: at most the budget
  double kept_share = 1;         ///< of the activations; below 1 the run is that of BudgetJob::checkpointed
  TrainingProgram program = {};  ///< the one predicted. BudgetJob::checkpointed asked again may find another
                                 ///< plan, for it goes by times that it measures
  std::vector<std::string> changes =
      {};  ///< what was changed and what it costs, one sentence each; empty: nothing
};

/// The first of these that fits: the run as it is; split masters, which keep the same weights in two bytes
/// fewer; checkpointing and smaller batches of which more make a step (in this order with batch norms, whose
/// statistics are of a batch, in the other without), then both together; the same with moments in bf16,
/// in int8, in int4. Throws ulp::Error naming the smallest peak that was found if none does.
ULP_API BudgetChoice fit_to_budget(const BudgetJob& job);

/// Whether a network normalises by its batches.
ULP_API bool has_batch_norm(const torch::nn::Module& model);

}  // namespace ulp::app
