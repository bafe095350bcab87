// The flags of ulp train.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/checkpoint_flags.h"
#include "cli/command.h"
#include "ulp/amp/watch/watch.h"
#include "ulp/train/train_options.h"

namespace ulp::cli {

struct TrainFlags : CommonFlags {
  std::string model;  ///< empty: the data's default
  std::string data = "fashion-mnist";
  std::string init, out, report, prune, fp8_recipe;
  bool keep_zeros = false;
  CheckpointFlags checkpointing;
  int64_t length = 128;
  bool optimizer_given = false;  ///< otherwise sgd, for text adamw
  bool watch = false;
  amp::WatchOptions watching;
  train::TrainOptions options;

  /// Finds what is wrong before hours of work; throws CLI::ValidationError for combinations of flags that
  /// make no sense.
  void check() const;
};

void add_train_flags(CLI::App& command, TrainFlags& flags);

}  // namespace ulp::cli
