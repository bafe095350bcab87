// Quantized weights, kept until the weight changes: over the batches of one accumulation a weight is quantized once.
// Internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "ulp/amp/fp8/fp8_tensor.h"

namespace ulp::amp {

/// What a product reads of a weight.
struct QuantizedWeight {
  Fp8Tensor forward;  ///< along the inputs of the layer
  Fp8Tensor
      backward;  ///< a matrix along its outputs, for the gradient of the input; empty where nobody asked
};

/// The one that was made of this weight with this key, while the weight's memory and version are the same and
/// forget_quantized_weights() was not called; else what `make` returns. Weights that are computed in the forward pass
/// are not kept.
QuantizedWeight quantized_weight(const at::Tensor& weight, const std::string& key,
                                 const std::function<QuantizedWeight()>& make);

/// Everything is made anew.
void forget_quantized_weights();

}  // namespace ulp::amp
