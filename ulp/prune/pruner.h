// Pruning by a recipe: at once, or step by step while a model trains.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/prune_recipe.h"
#include "ulp/prune/scores/movement.h"
#include "ulp/prune/scores/score.h"
#include "ulp/prune/structured/reorder.h"

namespace ulp::prune {

/// The remains of one parameter.
struct PrunedLayer {
  std::string parameter;
  int64_t kept = 0, elements = 0;
};

/// The result of pruning.
struct ULP_API PruneReport {
  std::vector<PrunedLayer> layers;
  std::vector<ReorderedGroup> reordered = {};  ///< Pattern::reorder
  int64_t kept() const;
  int64_t elements() const;
  /// The share of the weights that is pruned.
  double sparsity() const;
};

/// Prunes the module by the recipe's amount, whatever its schedule says: masks are set (masks.h), on top of
/// those that it has; weights stay as they are but for sparsegpt. Throws ulp::Error for a bad recipe, for
/// patterns of names that match nothing, for inputs that the score needs and lacks, for amounts that cannot
/// be, and for movement, which needs a Pruner; the module is then as it was. With Pattern::reorder its channels may be in
/// another order, and it throws as reorder_for_n_m() does.
ULP_API PruneReport prune(graph::GraphModule& module, const Recipe& recipe, const ScoreInputs& inputs = {});

/// Throws what prune() and Pruner throw for this recipe and model, but for what the scores' numbers show; nothing is computed.
ULP_API void check(const graph::GraphModule& module, const Recipe& recipe, const ScoreInputs& inputs = {});

/// Gives every weight of two dimensions or more that has zeros a mask of them, so that what was pruned before, and baked, stays pruned in
/// training; masks that are there stay. Returns what is kept of all such weights. Throws ulp::Error for a model without any.
ULP_API PruneReport mask_zeros(graph::GraphModule& module);

/// Prunes a model while it trains.
///
///   prune::Pruner pruner(module, recipe);
///   for (int64_t step = 0; step < steps; ++step) {
///     if (pruner.step(step)) prune::hold_masks(optimizer, *module, prune::masks(module->graph()));
///     loss(...).backward();
///     pruner.after_backward();  // movement gathers its scores here; nothing otherwise
///     optimizer.step();
///   }
///
/// All parameters of the recipe have masks from the start, of ones, so that the module's buffers are the same
/// throughout: a resumed run makes the Pruner, loads its checkpoint (io::load_checkpoint fills in the masks
/// with the weights), calls hold_masks() once and goes on with the next step(). Scores of movement are no
/// buffers: they go through MovementScores::scores() and set_scores(), as CheckpointParts::extra.
class ULP_API Pruner {
 public:
  /// Throws ulp::Error as prune() does.
  Pruner(std::shared_ptr<graph::GraphModule> module, Recipe recipe, ScoreInputs inputs = {});

  /// Draws masks where the schedule has the step; true where they may have changed. Throws as prune() does.
  bool step(int64_t step);
  /// Between backward and the optimizer's step.
  /// `scale`: what the loss was multiplied by; the gradients still are. Gradients that are not finite, whose step a scaler skips,
  /// change no scores.
  void after_backward(double scale = 1);
  /// A schedule of one's own in the place of the recipe's: the share of all units that is pruned from this
  /// step on, or nothing where masks stay. Not for n_m, soft_movement, counts and overrides.
  void set_schedule(std::function<std::optional<double>(int64_t step)> share);

  const graph::GraphModule& module() const { return *module_; }
  const Recipe& recipe() const { return recipe_; }
  const std::vector<std::string>& parameters() const { return parameters_; }
  /// The scores of movement; null for other scores.
  MovementScores* movement() { return movement_.get(); }
  /// Reports what is kept now.
  PruneReport report() const;

 private:
  std::shared_ptr<graph::GraphModule> module_;
  Recipe recipe_;
  ScoreInputs inputs_;
  std::vector<std::string> parameters_;
  std::vector<ReorderedGroup> reordered_;
  std::unique_ptr<MovementScores> movement_;
  std::function<std::optional<double>(int64_t)> share_;
};

}  // namespace ulp::prune
