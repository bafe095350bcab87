// Static quantization of an image classifier with calibration images.
#pragma once

#include <cstdint>
#include <memory>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/pass.h"
#include "ulp/io/dataset.h"
#include "ulp/quant/recipe.h"
#include "ulp/train/evaluate.h"

namespace ulp::train {

struct QuantizedModel {
  std::shared_ptr<graph::GraphModule> graph;  ///< with explicit quantize and dequantize nodes
  graph::PassReport report;                   ///< what was quantized, and what not and why
};

/// prepare, run the first `samples` images of `data` through it, convert. The captured model stays as it is.
/// Throws ulp::Error for no samples and Interrupted on Ctrl-C.
ULP_API QuantizedModel quantize(const std::shared_ptr<graph::GraphModule>& captured,
                                const quant::Recipe& recipe, const io::ImageDataset& data, int64_t samples,
                                const OnSamples& on_images = {});

}  // namespace ulp::train
