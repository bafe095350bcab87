// What `ulp inspect` shows: the contents of a file, the graph of a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ulp/app/model_io/model_file.h"
#include "ulp/base/export.h"
#include "ulp/report/table.h"

namespace ulp::app {

/// Bytes of a file, or of all files of a folder. Throws FileError where they cannot be read.
ULP_API uint64_t bytes_of_files(const std::filesystem::path& path);

/// What a safetensors file holds, of which an engine file is one, an ONNX, .pt2, GGUF or TensorFlow Lite
/// file, a Core ML package, or published weights.
struct FileContents {
  std::string kind;  ///< "engine", "safetensors", ...
  uint64_t bytes = 0;
  std::map<std::string, std::string> metadata;  ///< without the plan
  std::optional<report::Table> steps;           ///< of an engine
  report::Table tensors;
};
/// Published weights with a config.json, or of the network that `like` names, come with how they differ from
/// what the network has. Throws FileError for a file that is missing, damaged or something else.
ULP_API FileContents read_contents(const std::filesystem::path& path, const ModelSpec& like = {});

/// Whether this is the name of a reference network over images.
ULP_API bool is_reference_network(const std::string& name);

/// The captured graph of a reference network (of the spec's sizes) or of a model file. Throws as
/// load_model_file().
ULP_API std::shared_ptr<graph::GraphModule> graph_of(const std::string& network_or_file, ModelSpec spec);

}  // namespace ulp::app
