// Iterative pruning with rewinding: train, prune, go back, train again (Frankle and Carbin 2019, "The lottery ticket
// hypothesis"; Frankle et al. 2020, "Linear mode connectivity"; Renda et al. 2020, "Comparing rewinding and fine-tuning").
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/prune_recipe.h"
#include "ulp/prune/scores/score.h"
#include "ulp/train/task.h"
#include "ulp/train/train_options.h"
#include "ulp/train/trainer.h"

namespace ulp::train {

/// Where a round starts once weights were pruned.
enum class Rewind : uint8_t {
  weights,  ///< from the weights, moments, random numbers and data of step `step` of the first round, bit for bit
  learning_rate,  ///< from the trained weights; the whole schedule runs again
  fine_tune,      ///< from the trained weights, at a small constant rate
  reinitialize    ///< from fresh weights: the control of the lottery ticket
};

/// Options of all rounds.
struct ULP_API TicketOptions {
  prune::Recipe recipe = {};  ///< pruned at the begin of each round but the first; its schedule is not read
  int64_t rounds = 10;        ///< of pruning, >= 0; one more of training
  Rewind rewind = Rewind::learning_rate;
  int64_t step = 0;               ///< Rewind::weights: 0 is the weights before training
  double fine_tune_rate = 0.001;  ///< Rewind::fine_tune
  TrainOptions training = {};     ///< of every round

  /// Throws ulp::Error naming the field.
  void validate() const;
};

/// The model and all that is needed to train and to judge it.
struct TicketTask {
  std::shared_ptr<graph::GraphModule> model;  ///< with the weights that the first round starts from
  /// Batches of training, in an order that follows from the seed.
  std::function<std::unique_ptr<BatchStream>(uint64_t seed)> batches;
  /// The share of right answers in eval mode, or whatever is to be compared; higher is better.
  std::function<double(graph::GraphModule& model)> evaluate;
  std::string description;  ///< a run is continued only where it is the same
  std::function<void(graph::GraphModule& model)> reinitialize =
      {};                          ///< Rewind::reinitialize: draws fresh weights
  prune::ScoreInputs inputs = {};  ///< of scores that need some
};

/// The result of a round.
struct TicketRound {
  int64_t round = 0;
  double kept = 1;   ///< share of the weights that the recipe prunes
  double score = 0;  ///< TicketTask::evaluate after training
  bool operator==(const TicketRound&) const = default;
};

/// Called after each step of a round.
using OnTicketStep = std::function<void(int64_t round, const StepInfo& info, int64_t total_steps)>;

/// Runs all rounds and keeps each in the folder, which is made: round_N.safetensors holds weights and masks after round N. A run
/// that was ended, by Ctrl-C or kill -9, goes on when it is started again with the same folder, and gives the same bytes. The
/// model ends as the last round left it, with its masks. Throws ulp::Error for bad options, a task that lacks something, a
/// folder of another run; Interrupted on Ctrl-C; and where prune::prune() and Trainer do.
ULP_API std::vector<TicketRound> find_tickets(const TicketTask& task, const TicketOptions& options,
                                              const std::filesystem::path& folder,
                                              const OnTicketStep& on_step = {});

/// Whether step `options.step` is late enough: trains the model as it is twice from there, with data in two orders, and compares
/// the networks on the straight line between the two results. Returns (score(0) + score(1)) / 2 - min over the line of the score:
/// about 0 where the rest of training is stable to the noise of the data's order, so that weights may be rewound to the
/// step (Frankle et al. 2020, section 3). `points` between the ends, >= 1. Uses the folder for what both share. The model is left as it
/// was.
ULP_API double linear_barrier(const TicketTask& task, const TicketOptions& options,
                              const std::filesystem::path& folder, int64_t points = 9);

}  // namespace ulp::train

template <>
struct ulp::EnumNames<ulp::train::Rewind> {
  using enum train::Rewind;
  static constexpr std::array<Word<train::Rewind>, 4> list = {
      {{weights, "weights", "to the weights of an early step"},
       {learning_rate, "learning_rate", "the schedule runs again"},
       {fine_tune, "fine_tune", "at a small constant rate"},
       {reinitialize, "reinitialize", "fresh weights, as a control"}}};
};
