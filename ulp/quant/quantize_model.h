// One way to quantize a captured model, whatever the mode: quantize(model, recipe).
//
//   auto a = ulp::quant::quantize(captured, DynamicRecipe{.per_tensor = true});
//   auto b = ulp::quant::quantize(captured, Recipe::x86_int8(), [&](graph::GraphModule& prepared) {
//     for (const auto& batch : calibration) prepared.forward({batch});
//   });
//
// Each mode's own functions stay what they are: quantize.h (prepare, convert), qat.h, weights/dynamic.h and
// weights/weights.h. This calls them in order.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/any_recipe.h"
#include "ulp/quant/calibrate.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/calibrated_weights.h"

namespace ulp::quant {

/// Trains a model, which comes in train mode; QatRecipe::schedule() says when to freeze what.
using Train = std::function<void(QatModule& model)>;

/// The quantized model; the captured one stays as it is, but its parameters are those that QAT trains. Throws
/// ulp::Error for an invalid recipe, where prepare() and convert() (prepare_qat() and convert_qat()) do, and
/// for no function. `report` receives what was quantized, and what not and why.
///
/// Methods that a static recipe names (methods/static_methods.h) run in this order: scale_channels(); observers;
/// conversion; then, layer after layer in order of execution, adaround_weight() and the correction of biases, each on the
/// inputs that the layer gets in the float and in the quantized network. `calibrate` is called once for observers,
/// once for smoothquant, and twice for both of the latter (with `recompute` twice a layer); it has to give the
/// same batches every time. `errors` receives what learned rounding leaves of each layer.
ULP_API std::shared_ptr<graph::GraphModule> quantize(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const StaticRecipe& recipe, const Calibrate& calibrate,
                                                     graph::PassReport* report = nullptr,
                                                     std::vector<WeightError>* errors = nullptr,
                                                     const OnLayer& on_layer = {});
/// Quantizes by training (QAT).
ULP_API std::shared_ptr<graph::GraphModule> quantize(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const QatRecipe& recipe, const Train& train,
                                                     graph::PassReport* report = nullptr);
/// Quantizes dynamically, without data.
ULP_API std::shared_ptr<graph::GraphModule> quantize(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const DynamicRecipe& recipe,
                                                     graph::PassReport* report = nullptr);
/// Quantizes the weights alone, by the method rtn.
ULP_API std::shared_ptr<graph::GraphModule> quantize(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const WeightOnlyRecipe& recipe,
                                                     graph::PassReport* report = nullptr);
/// Quantizes the weights alone by any method. `calibrate` runs batches through the float model; it is called
/// once, and with WeightOnlyRecipe::recompute once for each input of layers. For rtn it is not called.
ULP_API std::shared_ptr<graph::GraphModule> quantize(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const WeightOnlyRecipe& recipe,
                                                     const Calibrate& calibrate,
                                                     graph::PassReport* report = nullptr);
/// Quantizes by a recipe of any mode, as read from a file. `feed` calibrates, or trains the QatModule that it
/// gets; modes that need no data do not call it.
ULP_API std::shared_ptr<graph::GraphModule> quantize(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const AnyRecipe& recipe, const Calibrate& feed = {},
                                                     graph::PassReport* report = nullptr);

}  // namespace ulp::quant
