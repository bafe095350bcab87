// The flags of ulp prune.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/checkpoint_flags.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/recipe_flags.h"
#include "ulp/app/prune/prune.h"

namespace ulp::cli {

/// How far to prune: --sparsity, --keep or --target.
struct PruneGoal {
  std::string given;                   ///< the flag with its value, for messages
  std::optional<prune::Measure> kept;  ///< --keep: what `share` counts; nothing: weights that become zeros
  double share = 0;                    ///< of what is kept, or of the zeros
};

struct PruneFlags : CommonFlags {
  std::string model, out, recipe, report, save_recipe, width_table;
  std::string sparsity, keep, target;  ///< as given; `target` is how earlier versions spell the other two
  std::string structure, save_structure;
  std::string method;  ///< empty: what the recipe is for
  std::string data = "fashion-mnist";
  int64_t samples = 512, test = 10000;
  std::vector<double> sweep;
  std::string rewind, tickets;  ///< lottery tickets: where a round starts, and the folder of the rounds
  int64_t rewind_step = 0;
  CheckpointFlags checkpointing;
  bool data_given = false, finetune = false, no_latency = false, verbose = false;
  RecipeFlags fields{"--method"};  ///< of each method's recipe
  ScriptShape shape;

  /// Whether one of the three is given, whatever it says.
  bool has_goal() const { return !sparsity.empty() || !keep.empty() || !target.empty(); }
  /// Nothing where the recipe says it. Throws CLI::ValidationError for a text that is no goal, and for
  /// several flags.
  std::optional<PruneGoal> goal() const;
  /// Finds what is wrong before hours of work; throws CLI errors for combinations of flags that make no sense.
  void check() const;
  /// --rewind and what goes with it; nothing without. `rounds` is the recipe's.
  std::optional<app::TicketRounds> ticket_rounds(int64_t rounds) const;
};

void add_prune_flags(CLI::App& command, PruneFlags& flags);

/// The names of --method.
inline constexpr const char* kMethods[] = {"weights", "channels"};
/// The default recipe of a method.
app::PruneRecipe recipe_of(const std::string& method);

/// Puts the goal into the recipe. Throws CLI::ValidationError where it is for the other method.
void apply_goal(const PruneGoal& goal, app::PruneRecipe& recipe);

}  // namespace ulp::cli
