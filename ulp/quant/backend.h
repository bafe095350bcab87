// The schemes that each target of quantized models takes.
#pragma once

#include <string>

#include "ulp/base/export.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {

/// Why the backend cannot run results of this op so quantized ("tflite_int8 takes activations of s8 affine,
/// got u8 affine per tensor"); empty where it can. x86_int8 refuses nothing here: graphs of any scheme can be
/// studied, and ulp::lower names the layer whose codes the engine cannot run.
ULP_API std::string activation_obstacle(Backend backend, const OpName& op, const TensorRecipe& recipe);
/// Says why the backend does not take this recipe for a layer's weight; empty where it does.
ULP_API std::string weight_obstacle(Backend backend, const TensorRecipe& recipe);

/// Whether a layer takes the sum behind it before its result is rounded to codes. Runtimes that read QuantizeLinear and
/// DequantizeLinear round first: a layer between float numbers stays in float there. TensorFlow Lite's sum is an operator of its
/// own.
ULP_API bool sums_in_layers(Backend backend);

/// Whether a layer takes a curve behind it, such as hardswish, before its result is rounded to codes; TensorFlow Lite's take
/// clamps alone.
ULP_API bool fuses_activations(Backend backend);

/// Whether the result of a layer or a sum has codes also where no quantized op reads it, as the logits: TensorFlow Lite's
/// integer operators give nothing else.
ULP_API bool ends_in_integers(Backend backend);

/// Whether an average may leave with a scale of its own, which fits its narrower range; TensorFlow Lite's
/// specification gives it that of its input.
ULP_API bool requantizes_averages(Backend backend);

}  // namespace ulp::quant
