// The flags of ulp quantize.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/checkpoint_flags.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/quantize_explain.h"
#include "cli/recipe_flags.h"
#include "ulp/app/quantize/quantize_mode.h"

namespace ulp::cli {

/// The search for bits of weights. What is not given is as the recipe has it.
struct BitSearchFlags {
  std::string max_bytes;
  std::optional<double> max_loss = {};
  std::vector<std::string> candidates;
  std::optional<int64_t> finalists = {};

  void add_to(CLI::App& command);
  /// Puts what was given into the fields of a recipe of the mode. Throws CLI::ValidationError for another
  /// mode.
  void put(const app::QuantizeMode& mode, nlohmann::json& fields) const;
};

struct QuantizeFlags : CommonFlags {
  std::string model, out, recipe, report, save_recipe, continued, adapter;
  std::string mode;  ///< empty: what the recipe is for
  std::string data = "fashion-mnist";
  std::string calibration;  ///< empty: the training part of `data`
  bool data_given = false;
  int64_t samples = 1000, test = 1000, keep_worst = 0;
  std::optional<double> max_drop = {};
  bool sensitivity = false, compare = false, keep_zeros = false, verbose = false, integer_io = false;
  CheckpointFlags checkpointing;
  RecipeFlags fields;  ///< of each mode's recipe
  ScriptShape shape;
  ExplainFlags explain;
  BitSearchFlags search;

  /// Finds what is wrong before hours of work; throws CLI errors for combinations of flags that make no
  /// sense.
  void check() const;
  /// The same of what the mode must know.
  void check(const app::QuantizeMode& chosen) const;
};

void add_quantize_flags(CLI::App& command, QuantizeFlags& flags);

}  // namespace ulp::cli
