// Adapters in the folders of Hugging Face's PEFT: adapter_model.safetensors with tensors
// base_model.model.<path>.lora_A.weight [r, in] and ...lora_B.weight [out, r], and adapter_config.json.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/lora/adapter_config.h"
#include "ulp/lora/lora_model.h"

namespace ulp::lora {

/// The pair of one layer.
struct AdapterPair {
  at::Tensor a;  ///< [r, in]
  at::Tensor b;  ///< [out, r]
};

/// An adapter as a folder holds it.
struct Adapter {
  AdapterConfig config;
  std::map<std::string, AdapterPair> layers;  ///< float32, by the path of the module as the file has it
};

/// True for a folder with an adapter_config.json.
ULP_API bool is_adapter(const std::filesystem::path& folder);

/// Reads a folder. Throws FileError for files that are missing, damaged or cut short, as
/// AdapterConfig::from_json(), for tensors with other names, types or numbers of dimensions, for pairs of
/// which one is missing, for another rank than the configuration's, and for NaN and infinite values.
ULP_API Adapter read_adapter(const std::filesystem::path& folder);

/// The captured model with this adapter, which can be trained on or merged: add_lora() with the adapter's
/// options for exactly its layers, their base as `base` says (its base, group, double_quant and
/// skip_modules). Paths are the model's own, with or without `model.`, `transformer.`, `bert.` or
/// `distilbert.` before them. Throws ulp::Error for layers that the model does not have or of other sizes,
/// for a layer that target_modules means and the adapter lacks, for one that it does not mean, and as
/// add_lora().
ULP_API std::shared_ptr<LoraModel> load_adapter(const std::shared_ptr<graph::GraphModule>& captured,
                                                const Adapter& adapter, const LoraOptions& base = {},
                                                graph::PassReport* report = nullptr);
/// Reads the folder first.
ULP_API std::shared_ptr<LoraModel> load_adapter(const std::shared_ptr<graph::GraphModule>& captured,
                                                const std::filesystem::path& folder,
                                                const LoraOptions& base = {},
                                                graph::PassReport* report = nullptr);

/// Writes the folder, which is made where it does not exist. Each file is written at once or not at all, and
/// the configuration last: a folder that a kill left between both is no adapter. Paths are those of
/// transformers (of GPT-2 `transformer.h.0`...). `base_model` names the model for base_model_name_or_path.
/// Throws ulp::Error where files cannot be written, and for adapters that are not finite.
ULP_API void save_adapter(const std::filesystem::path& folder, const LoraModel& model,
                          const std::string& base_model = {});

}  // namespace ulp::lora
