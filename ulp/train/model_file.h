// Models as the tool passes them between commands: a safetensors file that says which reference network it
// holds, or a TorchScript file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/models/image_model.h"
#include "ulp/train/evaluate.h"

namespace ulp {
namespace graph {
class GraphModule;
}

namespace train {

/// What is needed to make a reference network again and to prepare its input.
struct ULP_API ModelSpec {
  std::string name = "resnet14";
  int64_t in_channels = 1;
  int64_t num_classes = 10;
  int64_t image_size = 28;
  /// Per channel; input is (pixel / 255 - mean) / std. The defaults are Fashion-MNIST's.
  std::vector<double> mean = {0.2860};
  std::vector<double> std = {0.3530};

  std::string to_json() const;
  /// Throws FileError for text that is no such JSON.
  static ModelSpec from_json(const std::string& text);
};

/// The key of safetensors and engine metadata under which a ModelSpec is stored.
inline constexpr const char* kModelSpecKey = "ulp.model";

/// A model of either kind, ready to evaluate.
struct LoadedModel {
  ModelSpec spec;
  Classifier forward;                         ///< eager, in eval mode
  std::shared_ptr<graph::GraphModule> graph;  ///< captured, in eval mode
};

/// Writes weights and spec, atomically.
ULP_API void save_model_file(const std::filesystem::path& path, models::ImageModel& model,
                             const ModelSpec& spec);

/// Reads a file of save_model_file(), or a TorchScript file (.pt), which takes the shape and normalisation of
/// `script_spec`. Throws FileError for a file that is missing, damaged, or of neither kind.
ULP_API LoadedModel load_model_file(const std::filesystem::path& path, const ModelSpec& script_spec = {});

/// Captures a reference network for images of the spec's shape, in eval mode.
ULP_API std::shared_ptr<graph::GraphModule> capture_model(models::ImageModel& model, const ModelSpec& spec);

}  // namespace train
}  // namespace ulp
