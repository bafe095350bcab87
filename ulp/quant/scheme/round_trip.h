// A tensor through a scheme and back: parameters from its own values, and what the way costs.
#pragma once

#include "ulp/base/export.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/quant/scheme/scheme.h"

namespace ulp::quant {

/// Parameters for the range of the tensor's own values in each part of the granularity (what a dynamic scheme
/// does at run time, and what weights get). An all-zero part gets the smallest scale and represents 0.
/// Throws ulp::Error for an empty tensor, for NaN or infinite values, counting them, and for a shape without
/// such parts.
ULP_API QParams qparams_of(const at::Tensor& x, const Scheme& scheme);

/// dequantize(quantize(x)): float32 values, without gradient.
ULP_API at::Tensor quantize_dequantize(const at::Tensor& x, const QParams& params);

/// How far an approximation is from a tensor; computed in double precision.
struct QuantError {
  double mse = 0;      ///< mean of (x - y)^2
  double max_abs = 0;  ///< max of |x - y|
  /// 10 log10(sum x^2 / sum (x - y)^2): signal to quantization noise in decibels; infinite without an error,
  /// minus infinity for an error on a signal that is zero
  double sqnr_db = 0;
  double cosine = 0;  ///< <x, y> / (|x| |y|); 1 if both are zero, 0 if one is
};

/// Throws ulp::Error for tensors of different shapes, without elements, or with NaN or infinite values.
ULP_API QuantError quantization_error(const at::Tensor& x, const at::Tensor& approximation);

}  // namespace ulp::quant
