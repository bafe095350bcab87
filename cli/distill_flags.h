// The flags of ulp distill.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/checkpoint_flags.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/recipe_flags.h"
#include "ulp/app/distill/distill.h"

namespace ulp::cli {

struct DistillFlags : CommonFlags {
  std::vector<std::string> teachers;  ///< files; none for networks that teach themselves
  std::string student, out, recipe, save_recipe, report, cache, unlabelled, exit_features, init_layers;
  std::vector<std::string> losses, assistants, peers, exits;
  std::vector<double> teacher_weights;
  std::string teacher_precision = "fp32";
  std::string data = "fashion-mnist";
  int64_t length = 128, test = 10000, generations = 1, top = 0;
  double labels = 1, hard_labels = 0, noise = 0, peer_weight = 1;
  bool no_alone = false, no_latency = false, init = false;
  CheckpointFlags checkpointing;
  RecipeFlags fields{"--recipe"};
  ScriptShape shape;

  app::DistillScheme scheme() const;
  /// Finds what is wrong before hours of work; throws CLI errors for combinations of flags that make no sense.
  void check() const;
};

void add_distill_flags(CLI::App& command, DistillFlags& flags);

}  // namespace ulp::cli
