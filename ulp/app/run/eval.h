// What `ulp eval` does: how well a model or an engine does on the test part of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ulp/app/model_io/model_file.h"
#include "ulp/base/export.h"
#include "ulp/train/evaluate.h"
#include "ulp/train/task.h"

namespace ulp::app {

struct EvalOptions {
  std::string model = {};  ///< an engine file, a file of `ulp train`, or a TorchScript file
  std::string data = "fashion-mnist";
  int64_t batch = 250;
  int threads = 0;                   ///< of an engine; 0: one per core
  double error_budget = 0;           ///< of an engine, see runtime::EngineOptions
  double max_measuring_seconds = 5;  ///< of engines, see runtime::EngineOptions
  ModelSpec script_spec = {};        ///< what a TorchScript file does not say
  std::string adapter = {};          ///< a folder of PEFT whose adapter is merged first; empty: none
};

/// A network and what it is to be tried on.
struct Trial {
  ModelSpec spec;
  std::string kind;            ///< "engine" or "LibTorch"
  std::string unit = "image";  ///< what a sample is
  train::Forward forward;
  std::unique_ptr<train::BatchStream> batches;
};

/// Opens both. Throws FileError for files that are missing or damaged, Error for data that do not fit the
/// network.
ULP_API Trial make_trial(const EvalOptions& options);

}  // namespace ulp::app
