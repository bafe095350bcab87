// Anything that gives logits, whatever file it comes from: an engine (over images or text) or a LibTorch
// model of images.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ulp/app/model_file.h"
#include "ulp/base/export.h"
#include "ulp/runtime/engine/engine.h"
#include "ulp/train/evaluate.h"

namespace ulp::app {

struct Runnable {
  std::string kind;  ///< "engine" or "LibTorch"
  ModelSpec spec;
  train::Classifier forward;
  std::shared_ptr<runtime::Engine> engine;  ///< null for a LibTorch model
};

/// Opens an engine file, a file of `ulp train` or a TorchScript file. `script_spec` says what the file does
/// not. Throws FileError for anything else, and for an engine with other than one input and one output.
ULP_API Runnable load_runnable(const std::filesystem::path& path, const ModelSpec& script_spec = {},
                               int threads = 0);

}  // namespace ulp::app
