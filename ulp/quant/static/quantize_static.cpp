// Static quantization in one call.
#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/quant/methods/refine_layers.h"
#include "ulp/quant/methods/scale_channels.h"
#include "ulp/quant/methods/watched_model.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::quant {

using graph::GraphModule;
using graph::PassReport;

namespace {

/// Lines of what came before go before those of the rest.
void put_first(const PassReport& before, PassReport& report) {
  report.changes.insert(report.changes.begin(), before.changes.begin(), before.changes.end());
  report.near_misses.insert(report.near_misses.begin(), before.near_misses.begin(), before.near_misses.end());
}

}  // namespace

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured,
                                      const StaticRecipe& recipe, const Calibrate& calibrate,
                                      PassReport* report, std::vector<WeightError>* errors,
                                      const OnLayer& on_layer) {
  if (!calibrate) fail("quant.quantize", "expected a function that runs calibration data, got none");
  recipe.validate();
  PassReport scaled, result;
  const auto model = scale_channels(captured, recipe, calibrate, &scaled);
  Recipe plain = recipe;
  plain.methods = {};
  const auto prepared = prepare(model, plain);
  if (recipe.methods.has(StaticMethod::bias_correction)) add_zero_biases(*prepared);
  prepared->eval();
  {
    const at::NoGradGuard no_grad;
    calibrate(*prepared);
  }
  const auto converted = convert(prepared, &result);
  const StaticMethods rest = recipe.methods.behind_scaling();
  if (rest.any())
    refine_layers(*converted, *prepared, rest, batches_of(model, calibrate), result, errors, on_layer);
  put_first(scaled, result);
  if (report != nullptr) *report = std::move(result);
  return converted;
}

}  // namespace ulp::quant
