// AdaRound: whether a weight is rounded up or down is learned, so that its layer's result stays.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/quant/scheme/scheme.h"

namespace ulp::quant {

/// Calibration data as a matrix W [rows, columns] of a layer sees them, or one for each group: sums over the
/// rows x of its input in the float network and q of the same input in the quantized one. f64.
struct RoundingData {
  at::Tensor hessian;   ///< [groups, columns, columns]: sum q q^T
  at::Tensor products;  ///< [groups, rows, columns]: sum (W x) q^T
  at::Tensor norm;      ///< [groups, rows]: sum (W x)^2
};

/// Codes, and the errors sum (W x - Q q)^2 that they leave.
struct LearnedRounding {
  at::Tensor codes;    ///< s8 [groups, rows, columns]
  double error = 0;    ///< of these codes
  double nearest = 0;  ///< of codes rounded to nearest
};

/// AdaRound (Nagel et al. 2020, arXiv 2004.10568, equations 21 to 25): Q = s clamp(floor(W / s) + h(V), qmin, qmax) with
/// the rectified sigmoid h(V) = clamp(1.2 sigmoid(V) - 0.1, 0, 1), which begins at h = W / s - floor(W / s). Adam (rate
/// 0.01) lessens columns E / E_nearest + 10 sum(1 - |2 h - 1|^beta) for each row, where E = sum (W x - Q q)^2 over all
/// data and E_nearest is that of rounding to nearest. After a fifth of the `iterations`, in which the second term is
/// left out, beta falls from 20 to 2. At the end h becomes 0 or 1, and rows that are then worse than rounded to nearest
/// are rounded to nearest. Weights of 0 stay 0. Differs from the paper: errors are relative, so that the weight of
/// the second term (there 0.01) means the same in every row; all data at once instead of batches; no activation behind the layer in E.
///   weight  f32 [groups, rows, columns]
///   scale   f32 [groups, rows, 1]: s
/// Throws ulp::Error for other shapes and for sums that are not finite.
ULP_API LearnedRounding adaround_weight(const at::Tensor& weight, const at::Tensor& scale,
                                        const Scheme& scheme, const RoundingData& data, int64_t iterations);

}  // namespace ulp::quant
