// Published weights as models of the tool: a folder of Hugging Face's transformers, with its config.json and
// tokenizer.json, a GGUF file, or weights of a reference network over images, torchvision's among them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "ulp/app/model_io/model_file.h"
#include "ulp/base/export.h"
#include "ulp/io/pretrained_weights.h"
#include "ulp/quant/weights/quantized_weight.h"

namespace ulp::app {

/// True for a folder, an index of shards, a GGUF file, pickled weights (which are refused when they are
/// read), and safetensors that this library has not written and that a config.json lies beside, or whose
/// network is named (`network`).
ULP_API bool is_pretrained_file(const std::filesystem::path& path, const std::string& network = {});

/// Whether published weights say themselves which network they are of: GGUF files, and those beside a
/// config.json.
ULP_API bool says_its_network(const std::filesystem::path& path);

/// Reads config.json and tokenizer.json; nothing for weights without a config.json. Throws FileError where
/// they are damaged or describe a network that the models room does not have.
ULP_API std::optional<ModelSpec> pretrained_spec(const std::filesystem::path& path);

/// Whether the weights have a classifier of their own, so that the spec's classes mean something.
ULP_API bool pretrained_classifier(const std::filesystem::path& path);

/// A network with its weights.
struct PretrainedModel {
  Network network;  ///< captured, in eval mode
  ModelSpec spec;
  io::PretrainedReport report;
  /// The weights that a GGUF file has in codes, for quant::read_quantized_weights(); the network has their
  /// values.
  std::map<std::string, quant::StoredQuantizedWeight> codes = {};
};

/// Reads the weights. Without config.json `like.network` names the network over images, and `like` says how
/// large and how normalised they are. PretrainedFit::partial also takes the number of classes from `like`,
/// where it has one. Throws FileError where load_pretrained() does, for pickled weights with the way to
/// convert them, for a config.json of a larger network than the weights, and for weights that nothing names.
ULP_API PretrainedModel load_pretrained_model(const std::filesystem::path& path, const ModelSpec& like,
                                              PretrainedFit fit);

}  // namespace ulp::app
