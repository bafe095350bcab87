// The flags of commands whose training saves itself and is resumed.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "ulp/train/checkpointing.h"

namespace ulp::cli {

struct CheckpointFlags {
  std::string path;
  int64_t every = 0;
  bool resume = false;

  /// Adds --checkpoint, --checkpoint-every and --resume.
  void add_to(CLI::App& command);
  /// Throws a CLI error for flags that lack --checkpoint.
  void check() const;
  bool given() const { return !path.empty(); }
  train::Checkpointing saving() const { return {.path = path, .every = every, .resume = resume}; }
};

}  // namespace ulp::cli
