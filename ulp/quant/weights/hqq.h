// Half-quadratic quantization of a weight: ranges of the least l_p error, without data.
//
// Badri and Shaji 2023 ("Half-Quadratic Quantization of Large Machine Learning Models") lessen sum |W - Q|^p,
// p < 1, where a few large errors count for little, by splitting W - Q into a sparse part E and a rest:
//   E = shrink(W - Q),  shrink(x) = sign(x) max(0, |x| - |x|^(p - 1) / beta)
//   then the parameters of Q that are closest to W - E; beta grows by kappa each time.
// p = 0.7, beta = 10, kappa = 1.01, 20 times. Per group of the recipe:
//   affine, 4 bits and fewer: Q = scale code - minimum with scale = (max - min) / (2^bits - 1) fixed; minimum
//     = mean(scale code - (W - E)),
//     a number of its own in place of a zero point (stored as ulp::dequantize_weight's minimum)
//   symmetric, 8 bits too: Q = scale code; scale = <W - E, code> / <code, code>
// Then the parameters of all rounds, the first ones among them, with the least sum |W - Q|^p of the group are
// taken, where the published program ends when the mean error of the whole matrix grows.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/base/export.h"
#include "ulp/quant/weights/quantized_weight.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::quant {

/// Codes of a finite weight, f32 [rows, columns]. Throws ulp::Error for other shapes and types, NaN, infinite
/// values, ranges that float32 does not hold, and as WeightOnlyRecipe::validate().
ULP_API StoredQuantizedWeight hqq_weight(const at::Tensor& weight, const WeightOnlyRecipe& recipe);

}  // namespace ulp::quant
