#include "ulp/quant/quantize_model.h"

#include "ulp/base/error.h"
#include "ulp/quant/methods/watched_model.h"
#include "ulp/quant/weights/calibrated_weights.h"

namespace ulp::quant {

using graph::GraphModule;
using graph::PassReport;

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured, const QatRecipe& recipe,
                                      const Train& train, PassReport* report) {
  if (!train) fail("quant.quantize", "expected a function that trains, got none");
  recipe.validate();
  const auto model = prepare_qat(captured, recipe.tensors, recipe.options);
  train(*model);
  model->eval();
  return convert_qat(model, report);
}

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured,
                                      const DynamicRecipe& recipe, PassReport* report) {
  return quantize_dynamic(captured, recipe, report);
}

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured,
                                      const WeightOnlyRecipe& recipe, PassReport* report) {
  return quantize_weights(captured, recipe, report);
}

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured,
                                      const WeightOnlyRecipe& recipe, const Calibrate& calibrate,
                                      PassReport* report) {
  if (!calibrate || !captured) return quantize_weights(captured, recipe, report);
  return quantize_weights(captured, recipe, batches_of(captured, calibrate), report);
}

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured, const AnyRecipe& recipe,
                                      const Calibrate& feed, PassReport* report) {
  if (const auto* one = std::get_if<StaticRecipe>(&recipe)) return quantize(captured, *one, feed, report);
  if (const auto* one = std::get_if<QatRecipe>(&recipe)) return quantize(captured, *one, Train(feed), report);
  if (const auto* one = std::get_if<DynamicRecipe>(&recipe)) return quantize(captured, *one, report);
  return quantize(captured, std::get<WeightOnlyRecipe>(recipe), feed, report);
}

}  // namespace ulp::quant
