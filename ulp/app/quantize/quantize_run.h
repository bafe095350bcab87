// A whole quantization with its measurements: sensitivity, the mode's work, lowering, accuracies, comparison.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "ulp/app/quantize/quantize_mode.h"
#include "ulp/app/quantize/quantize_report.h"
#include "ulp/base/export.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::app {

/// Where a run is: so much of a stage is done. `note` is short free text.
struct Stage {
  std::string title;
  const char* unit;
  int64_t done, total;
  std::string note = {};
};

/// Options of `ulp quantize`.
struct QuantizeRequest {
  std::string model;                             ///< its name, for the tables
  std::shared_ptr<graph::GraphModule> captured;  ///< --mode qat trains its parameters
  const QuantizeMode* mode = nullptr;
  ModeRecipe recipe;                   ///< of the mode
  std::optional<SplitData> data = {};  ///< training samples; nothing where nothing needs them
  std::optional<SplitData> test = {};  ///< nothing: accuracies are not measured
  int64_t samples = 1000;              ///< to calibrate with
  /// Batches of a network with several inputs or results, in the place of data and test, each a list of
  /// inputs.
  std::vector<std::vector<at::Tensor>> inputs = {};
  train::Checkpointing saving = {};  ///< of a mode that trains
  bool sensitivity = false;          ///< measure each layer alone; needs data and test
  int64_t keep_worst = 0;            ///< leave so many of the worst in float; needs both, too
  /// Leave more of them in float until the engine loses at most so many points of accuracy; needs both, and a
  /// mode that does not train.
  std::optional<double> max_drop = {};
  bool compare = false;                              ///< compare activations on test samples
  bool make_engine = true;                           ///< false: sensitivity only
  int threads = 0;                                   ///< of the engines
  std::map<std::string, std::string> metadata = {};  ///< of the plan; recipe and mode are added
  std::string continued = {};                        ///< LowerOptions::continued of the plan
  std::function<void(const Stage& stage)> progress;
};

/// The result of `ulp quantize`.
struct QuantizeRun {
  QuantizeOutcome outcome;
  ModeRecipe recipe;                                    ///< that was used: with the worst layers left out
  std::optional<runtime::Plan> plan;                    ///< the quantized model; nothing without make_engine
  std::shared_ptr<graph::GraphModule> graph = nullptr;  ///< what the plan was made of
};

/// Throws ulp::Error where the parts do, naming the layer, and Interrupted on Ctrl-C.
ULP_API QuantizeRun run_quantize(const QuantizeRequest& request);

}  // namespace ulp::app
