// Measures what quantizing each layer alone costs the model, to find the few that are better left in float.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {

/// Options of the measurement for each layer.
struct SensitivityOptions {
  /// How good a model is (accuracy in per cent, higher is better); asked once for the float model and once
  /// for each layer. May be empty.
  std::function<double(graph::GraphModule& model)> score;
  /// Called after each layer.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// One layer quantized, everything else in float.
struct LayerSensitivity {
  std::string layer;  ///< "layer1.0.conv2 + add + relu"
  std::string value;  ///< the layer's own value, as Recipe::skip_values names it
  QuantError error;   ///< of the model's first result
  std::optional<double> score;
};

/// The cost of quantizing each layer alone.
struct Sensitivity {
  std::vector<LayerSensitivity> layers;  ///< worst first: lowest SQNR of the model's result
  std::optional<double> float_score;

  /// The values of the n worst, for Recipe::skip_values.
  ULP_API std::vector<std::string> worst(int64_t n) const;
};

/// Quantizes each convolution and linear layer of a calibrated model alone: its weight, its bias and what it
/// reads (with a residual add behind it, that add's other operand). Sums that no layer took are not listed.
/// `inputs` as for forward(). Throws ulp::Error where convert() does.
ULP_API Sensitivity sensitivity(const std::shared_ptr<PreparedModule>& calibrated,
                                const std::vector<at::Tensor>& inputs,
                                const SensitivityOptions& options = {});

}  // namespace ulp::quant
