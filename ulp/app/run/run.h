// What `ulp run` does: an engine, or a model that becomes one, on inputs from a file, on test images, or on
// random numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ulp/app/model_io/model_file.h"
#include "ulp/base/export.h"

namespace ulp::app {

struct RunOptions {
  std::string model = {};  ///< an engine file, a file of `ulp train`, or a TorchScript file
  bool pieces = false;     ///< no engine file: LibTorch runs the ops that the engine does not have
  /// Where inputs come from: a safetensors file with a tensor per input, by name (one tensor for one input
  /// may have any name); else the first test images of a data set; else normal random numbers (seed 0).
  std::string input = {}, data = {};
  int64_t count = 1;                 ///< images or random items
  bool allow_nonfinite = false;      ///< accept NaN and inf in `input`
  int threads = 0;                   ///< 0: one per core
  double error_budget = 0;           ///< see runtime::EngineOptions
  double max_measuring_seconds = 5;  ///< of engines, see runtime::EngineOptions
  ModelSpec script_spec = {};        ///< what a TorchScript file does not say
};

struct RunOutput {
  std::string name;
  at::Tensor value;
};

/// The outputs of the engine; a model is lowered in fp32 first. Throws FileError for files that are missing,
/// damaged or do not fit the engine, and Error as lower() does for a model with ops that the engine does not
/// have, unless it runs in pieces.
ULP_API std::vector<RunOutput> run_file(const RunOptions& options);

/// The largest value of a row of logits and where it is.
struct TopClass {
  int64_t index;
  double value;
};
/// For each row; empty for tensors that are no matrix.
ULP_API std::vector<TopClass> top_classes(const at::Tensor& logits);

/// Writes a safetensors file, atomically.
ULP_API void save_outputs(const std::filesystem::path& path, const std::vector<RunOutput>& outputs);

}  // namespace ulp::app
