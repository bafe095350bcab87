// The flags of ulp train.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/checkpoint_flags.h"
#include "cli/command.h"
#include "cli/lora_flags.h"
#include "ulp/amp/watch/watch.h"
#include "ulp/app/train/memory_plan.h"
#include "ulp/distributed/data_parallel.h"
#include "ulp/train/sharded_model.h"
#include "ulp/train/train_options.h"

namespace ulp::cli {

struct TrainFlags : CommonFlags {
  std::string model;  ///< empty: the data's default
  std::string data = "fashion-mnist";
  std::string memory_budget;           ///< empty: as much as it takes
  std::optional<int64_t> budget = {};  ///< the same in bytes; set by check()
  app::MemoryPlan plan;
  bool masters_given = false, moments_given = false;
  std::string init, out, report, prune, fp8_recipe, tokenizer;
  bool keep_zeros = false;
  LoraFlags lora;
  CheckpointFlags checkpointing;
  bool checkpoint_shares = false;
  train::Checkpointing saving() const {
    train::Checkpointing saving = checkpointing.saving();
    saving.in_shares = checkpoint_shares;
    return saving;
  }
  int64_t length = 128;
  bool optimizer_given = false;  ///< otherwise sgd, for text adamw
  bool watch = false;
  bool shows = true;  ///< false: another process of the run shows and writes what comes of it
  amp::WatchOptions watching;
  train::TrainOptions options;
  distributed::DataParallelOptions parallel;
  train::ParallelOptions sharing;

  /// Finds what is wrong before hours of work; throws CLI::ValidationError for combinations of flags that
  /// make no sense.
  void check();

 private:
  void check_parts() const;
  void check_plan() const;
  void check_compile() const;
  void check_adapters() const;
};

void add_train_flags(CLI::App& command, TrainFlags& flags);

}  // namespace ulp::cli
