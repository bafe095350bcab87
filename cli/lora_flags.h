// Flags of low-rank adapters: training them, and merging one into a model.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "ulp/amp/autocast/precision.h"
#include "ulp/app/model_io/adapter.h"

namespace ulp::cli {

/// --lora and its like, of `ulp train`.
struct LoraFlags {
  app::AdapterTraining training = {};
  std::string folder = {};       ///< --adapter
  bool asked = false;            ///< --lora was given
  std::string first_other = {};  ///< the first flag beside it that was given

  void add_to(CLI::App& command);
  bool trains() const { return asked || !folder.empty(); }
  /// Throws CLI::ValidationError for flags that do not go together. `init`: --init was given.
  void check(bool init, const amp::PrecisionName& precision, bool masters) const;
  /// What they ask for.
  app::AdapterTraining asked_for() const;
};

/// --adapter of commands that read a model.
void add_adapter_flag(CLI::App& command, std::string& folder);

/// Throws a usage error unless a folder of PEFT can be written there.
void check_adapter_folder(const std::string& out);

/// What `ulp train` says of adapters: as JSON, and in a line.
nlohmann::json figures_of(const lora::LoraModel& adapters);
/// "adapters: 294912 parameters in 24 layers; base in nf4, 61.2 MiB"
std::string text_of(const lora::LoraModel& adapters);

}  // namespace ulp::cli
