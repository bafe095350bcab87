// Quantization of a classifier or a language model with samples of its data: calibrated, or trained on
// quantized numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "ulp/app/data/data.h"
#include "ulp/app/train/fine_tuning.h"
#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/calibrate.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/weights/calibrated_weights.h"
#include "ulp/train/checkpointing.h"
#include "ulp/train/evaluate.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

/// A quantized graph, and how it came about.
struct QuantizedModel {
  std::shared_ptr<graph::GraphModule> graph;  ///< with explicit quantize and dequantize nodes
  graph::PassReport report;                   ///< what was quantized, and what not and why
  /// The float model whose values those of `graph` stand for, where methods scaled the channels of the
  /// captured one.
  std::shared_ptr<graph::GraphModule> scaled = nullptr;
};

/// prepare, and run the first `samples` of `data` through it. Throws ulp::Error for no samples and
/// Interrupted on Ctrl-C.
ULP_API std::shared_ptr<quant::PreparedModule> calibrate(const std::shared_ptr<graph::GraphModule>& captured,
                                                         const quant::Recipe& recipe, const SplitData& data,
                                                         int64_t samples,
                                                         const train::OnSamples& on_samples = {});

/// Quantizes by a static recipe, whose methods and observers run the batches of `feed`. `on_layer` hears of
/// layers whose codes a method decides.
ULP_API QuantizedModel quantize(const std::shared_ptr<graph::GraphModule>& captured,
                                const quant::Recipe& recipe, const quant::Calibrate& feed,
                                const quant::OnLayer& on_layer = {});

/// calibrate, convert; with the recipe's methods. The captured model stays as it is.
ULP_API QuantizedModel quantize(const std::shared_ptr<graph::GraphModule>& captured,
                                const quant::Recipe& recipe, const SplitData& data, int64_t samples,
                                const train::OnSamples& on_samples = {}, const quant::OnLayer& on_layer = {});

/// prepare_qat, train on all of `data`, convert_qat. The parameters of the captured model are trained; what
/// its masks prune stays pruned. Throws ulp::Error for a loss that is not finite and Interrupted on Ctrl-C. A
/// run that saves itself continues with the same bits, whatever ended it; one of another recipe, other
/// options or other data is refused. Observers whose state grows with the data (percentile, entropy, mean
/// squared error) cannot be resumed: FileError says what does not fit.
ULP_API QuantizedModel quantize_qat(const std::shared_ptr<graph::GraphModule>& captured,
                                    const quant::QatRecipe& recipe, const SplitData& data,
                                    const FineTuning& training = {}, const OnStep& on_step = {},
                                    const train::Checkpointing& saving = {});

}  // namespace ulp::app
