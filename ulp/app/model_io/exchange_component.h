// What the tool needs of the room `exchange`, which it is also linked without.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/app/model_io/exchange_file.h"
#include "ulp/app/model_io/inspect.h"
#include "ulp/app/model_io/pretrained_file.h"
#include "ulp/base/component.h"
#include "ulp/base/export.h"

namespace ulp::app {

struct ExchangeFiles {
  std::map<std::string, std::string> (*onnx_metadata)(const std::filesystem::path& path);
  std::shared_ptr<graph::GraphModule> (*load_onnx)(const std::filesystem::path& path, const ModelSpec& like,
                                                   ExchangeUse use, std::vector<FixedDimension>& fixed);
  std::shared_ptr<graph::GraphModule> (*load_pt2)(const std::filesystem::path& path, const ModelSpec& like);
  ModelSpec (*gguf_spec)(const std::filesystem::path& path);
  PretrainedModel (*load_gguf)(const std::filesystem::path& path);
  /// The tensors of the file as it stores them, and its keys.
  FileContents (*gguf_contents)(const std::filesystem::path& path);
  /// The operators and tensors of a TensorFlow Lite file, or of a Core ML package, which is a folder.
  FileContents (*listed_contents)(const std::filesystem::path& path);
  /// Throws ulp::Error for a graph with calls that have no form in ONNX.
  void (*check_onnx)(const graph::GraphModule& graph);
  void (*export_onnx)(const graph::GraphModule& graph, const std::filesystem::path& path,
                      const std::map<std::string, std::string>& metadata);
  /// The same of TensorFlow Lite, for a batch of 1; `integer_io` as TfliteOptions has it.
  void (*check_tflite)(const graph::GraphModule& graph);
  void (*export_tflite)(const graph::GraphModule& graph, const std::filesystem::path& path, bool integer_io);
};
ULP_API extern Component<ExchangeFiles> exchange_files;

/// True for a file that begins as GGUF files do.
bool is_gguf_file(const std::filesystem::path& path);

/// "1 x 28 x 28"; "scalar" for none.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace ulp::app
