// Low-rank adapters in the tool: training them beside a network, and merging them into a model that is
// loaded.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ulp/app/model_io/model_file.h"
#include "ulp/base/export.h"
#include "ulp/lora/lora_model.h"
#include "ulp/lora/lora_options.h"

namespace ulp::app {

/// How a run trains adapters.
struct AdapterTraining {
  lora::LoraOptions options = {};
  /// A folder of PEFT whose adapter is trained on; of the options the base counts then. Empty: a new one.
  std::filesystem::path from = {};
};

/// The network as a graph with adapters, whose other tensors are frozen: `module` is a lora::LoraModel.
/// Throws as captured(), lora::add_lora() and lora::load_adapter().
ULP_API Network with_adapters(const Network& network, const ModelSpec& spec, const AdapterTraining& training);

/// The model that a Network of with_adapters() holds; null for another network.
ULP_API std::shared_ptr<lora::LoraModel> adapters_of(const Network& network);

/// The options and the base of the adapters, by which a checkpoint knows its run.
ULP_API std::string describe_run(const lora::LoraModel& model);

/// Merges the adapter of a folder into the model, which stays where `folder` is empty. Throws FileError for a
/// folder that is no adapter, and ulp::Error for one of another model, which is named by `path`.
ULP_API void merge_adapter(LoadedModel& model, const std::filesystem::path& folder, const std::string& path);

/// Writes the adapter as a folder of PEFT; `base` names the model that it is for.
ULP_API void save_adapters(const std::filesystem::path& folder, const lora::LoraModel& model,
                           const std::string& base);

}  // namespace ulp::app
