// Pruning of a trained network with its measurements: scores, masks or cuts, training on, and what it cost
// and saved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ulp/app/prune/prune_report.h"
#include "ulp/app/quantize/quantize_run.h"
#include "ulp/app/train/fine_tuning.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/prune_recipe.h"
#include "ulp/prune/structured/channel_pruning_recipe.h"
#include "ulp/train/checkpointing.h"
#include "ulp/train/task.h"
#include "ulp/train/tickets.h"

namespace ulp::app {

/// Single weights become zeros (weights), or channels, heads and neurons are cut out (channels).
using AnyPruneRecipe = std::variant<prune::Recipe, prune::ChannelPruningRecipe>;

/// A recipe as a file of the tool holds it: the recipe's own fields and the group "training".
struct ULP_API PruneRecipe {
  AnyPruneRecipe recipe;
  FineTuning training = {};

  bool cuts() const { return std::holds_alternative<prune::ChannelPruningRecipe>(recipe); }
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  std::string to_json() const;
  /// The method is what "type" says. Throws FileError for other text.
  static PruneRecipe from_json(const std::string& text);
};

/// Rounds of training, pruning and going back (train::find_tickets), by the recipe's amount in each, or to
/// its share of all in the last.
struct TicketRounds {
  train::Rewind rewind = train::Rewind::weights;
  int64_t rounds = 1;  ///< of pruning, >= 1; one more of training
  int64_t step = 0;    ///< Rewind::weights: of the first round
  std::filesystem::path folder =
      {};  ///< where each round is kept and a run goes on; empty: nowhere, in the end
};

/// Options of `ulp prune`.
struct PruneRequest {
  std::string model;                             ///< its name, for the tables
  std::shared_ptr<graph::GraphModule> captured;  ///< stays as it is
  PruneRecipe recipe;
  bool finetune = false;  ///< train on by recipe.training, with recipes of several steps after each
  /// Batches to train on and to compute scores with, anew at each call; empty where nothing needs them.
  std::function<std::unique_ptr<train::BatchStream>(const train::StreamOptions& options)> train_batches = {};
  /// Samples of a network with several inputs, in the place of batches, for scores by inputs and activations,
  /// each a list of inputs.
  std::vector<std::vector<at::Tensor>> inputs = {};
  /// Test batches, anew at each call; empty: accuracies are not measured.
  std::function<std::unique_ptr<train::BatchStream>()> test_batches = {};
  const char* unit = "image";      ///< what a sample is
  int64_t samples = 512;           ///< that scores are computed with
  std::vector<double> sweep = {};  ///< what is kept, of each a point without training
  bool sweep_only = false;         ///< and nothing more: no network comes out
  bool latency = true;             ///< measure the engines
  /// The prune::WidthTable of a recipe with measured_widths: read, or measured and written where there is
  /// none; empty: measured.
  std::filesystem::path width_table = {};
  /// The structure that an earlier cut of this network kept (prune::structure_to_json), whatever the recipe's
  /// measure and share say.
  std::string structure = {};
  int threads = 0;  ///< of the engines
  /// With finetune: where training saves itself. A run that has a place for it ends at Ctrl-C with that
  /// checkpoint and nothing else.
  train::Checkpointing saving = {};
  /// Lottery tickets, for a recipe of weights. Each round trains as recipe.training says, without losses of
  /// distillation.
  std::optional<TicketRounds> tickets = {};
  std::function<void(const Stage& stage)> progress = {};
};

/// The result: the pruned network with plain weights, ready for `io::save_graph`, `quant::quantize` and
/// `lower`.
struct PruneRun {
  PruneOutcome outcome;
  std::shared_ptr<graph::GraphModule> model;
  std::string structure = {};  ///< of channels: what was kept of the network (prune::structure_to_json)
};

/// Throws ulp::Error where the parts do, naming the layer, and Interrupted on Ctrl-C before anything was
/// pruned, or where the run saves itself; else Ctrl-C ends the run with the network as it is then
/// (outcome.interrupted). A run that is resumed comes to the same network bit for bit; states that the run
/// before it measured are not in its outcome, and a note says so. Ctrl-C in rounds of tickets always throws
/// Interrupted: what was done is in their folder.
ULP_API PruneRun run_prune(const PruneRequest& request);

}  // namespace ulp::app
