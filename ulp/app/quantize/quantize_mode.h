// The ways in which `ulp quantize` makes a model small: a table with one entry a mode.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulp/app/quantize/quantize_recipe.h"
#include "ulp/base/export.h"

namespace ulp::app {

/// The inputs of a mode; each takes what it needs.
struct QuantizeJob {
  std::shared_ptr<graph::GraphModule> captured;
  ModeRecipe recipe;                   ///< of the mode
  std::optional<SplitData> data = {};  ///< training samples; nothing for modes that need none
  int64_t samples = 1000;              ///< so many calibrate
  /// static and weight-only, in the place of data: batches of a network with several inputs, each a list of
  /// them.
  std::vector<std::vector<at::Tensor>> inputs = {};
  train::Checkpointing saving = {};  ///< qat: of the training
  /// So much of the work is done; `note` is short free text.
  std::function<void(int64_t done, int64_t total, const std::string& note)> progress;
  /// static: so many layers have the codes that a method decides; `layer` comes next.
  quant::OnLayer on_layer = {};
};

/// One way of quantizing, as `ulp quantize --mode` names it.
struct QuantizeMode {
  const char* name;
  const char* summary;
  bool needs_data;   ///< whatever the recipe says; see needs_data()
  bool trains;       ///< may save itself and be resumed
  const char* verb;  ///< what its progress is called
  const char* unit;  ///< what its progress counts; null: samples
  ModeRecipe (*default_recipe)();
  /// Converts a recipe of tensors (a profile, a file of type "ulp.quant.Recipe") to this mode. Throws
  /// ulp::Error for fields that it has no place for.
  quant::AnyRecipe (*from_tensors)(const quant::Recipe& tensors);
  QuantizedModel (*run)(const QuantizeJob& job);
};

/// The batches of samples, or those of a network with several inputs, which must outlive the function;
/// nothing where there are none. Interrupted comes out on Ctrl-C.
quant::CalibrationData calibration_data(const std::optional<SplitData>& data,
                                        const std::vector<std::vector<at::Tensor>>& inputs, int64_t samples);

/// Whether the mode looks at data with this recipe: weight-only does by gptq and awq, and for a search.
ULP_API bool needs_data(const QuantizeMode& mode, const quant::AnyRecipe& recipe);
/// Whether the recipe has a search for bits of weights.
ULP_API bool searches(const quant::AnyRecipe& recipe);
/// Every mode there is, the default one first.
ULP_API std::span<const QuantizeMode> quantize_modes();
/// The mode that a recipe is for; of tensors with the backend weight_only, weight-only, and with binary, qat.
ULP_API const QuantizeMode& mode_of(const quant::AnyRecipe& recipe);
/// The recipe for this mode: itself, or what tensors mean to the mode. Throws ulp::Error for one of another
/// mode, which it names.
ULP_API ModeRecipe recipe_for(const QuantizeMode& mode, ModeRecipe recipe);
/// Throws ulp::Error that lists the known names.
ULP_API const QuantizeMode& find_quantize_mode(const std::string& name);

}  // namespace ulp::app
