// Where a quantized model departs from the float one: activations side by side, value by value.
#pragma once

#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {

/// One value of both models.
struct ValueComparison {
  std::string layer;       ///< path of the module that computed it; the value's name where that is not known
  std::string op;          ///< "aten::conv2d"; "input" for an input of the model
  std::string value;       ///< its name in the graphs
  bool quantized = false;  ///< its codes are what the quantized model goes on with
  QuantError error;        ///< of the quantized model's value, errors of all layers before it included
};

/// Runs both models on the same inputs (as for forward()) in eval mode and compares every floating-point
/// activation that both have, in order of execution; values that only look at another one in another shape
/// are left out. The float model is taken as prepare() takes it: canonical, batch norms folded; `quantized`
/// is what convert() or convert_qat() made of it. A value that is quantized is compared after its dequantize.
/// Throws ulp::Error naming the layer for NaN or infinite values, and for models without a common value.
ULP_API std::vector<ValueComparison> compare(const graph::GraphModule& float_model,
                                             const graph::GraphModule& quantized,
                                             const std::vector<at::Tensor>& inputs);

}  // namespace ulp::quant
