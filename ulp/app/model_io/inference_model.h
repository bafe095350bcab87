// Anything that gives logits, whatever file it comes from: an engine (over images or text) or a LibTorch
// model of images.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ulp/app/model_io/model_file.h"
#include "ulp/base/export.h"
#include "ulp/lower/partitioned_model.h"
#include "ulp/runtime/engine/engine.h"
#include "ulp/train/evaluate.h"

namespace ulp::app {

struct InferenceModel {
  std::string kind;  ///< "engine", "LibTorch", or "pieces"
  ModelSpec spec;
  train::Classifier forward;
  std::shared_ptr<runtime::Engine> engine;    ///< null for a LibTorch model
  std::shared_ptr<graph::GraphModule> graph;  ///< of a LibTorch model
  std::shared_ptr<PartitionedModel> pieces = nullptr;
};

/// True for an engine file, false for another that is there. Throws FileError for one that is damaged.
ULP_API bool is_engine_file(const std::filesystem::path& path);

/// Opens an engine file, a file of `ulp train`, a TorchScript, ONNX or .pt2 file. `script_spec` says what the
/// file does not. `engine`: how one runs. Throws FileError for anything else, for an engine with other than
/// one input and one output, and for an error budget beside a file that is no engine.
ULP_API InferenceModel load_inference_model(const std::filesystem::path& path,
                                            const ModelSpec& script_spec = {},
                                            const runtime::EngineOptions& engine = {});

/// Partitions the LibTorch model: engines in fp32 for what they have, LibTorch for the rest. Free
/// dimensions beside the batch have their largest sizes. `engine`: how they run.
ULP_API InferenceModel as_partitioned(const InferenceModel& model, const runtime::EngineOptions& engine = {});

}  // namespace ulp::app
