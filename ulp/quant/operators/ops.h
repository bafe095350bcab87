// The dispatcher operators of quantization, registered under the namespace `ulp`:
//
//   ulp::quantize(Tensor x, Tensor scale, Tensor zero_point, int axis, int qmin, int qmax, ScalarType dtype)
//     -> Tensor
//   ulp::dequantize(Tensor q, Tensor scale, Tensor zero_point, int axis) -> Tensor
//   ulp::fake_quantize(Tensor x, Tensor scale, Tensor zero_point, int axis, int qmin, int qmax) -> Tensor
//   ulp::fake_quantize_learned(Tensor x, Tensor scale, Tensor zero_point, int axis, int qmin, int qmax,
//     float gradient_factor) -> Tensor
//   ulp::average_codes(Tensor q, Tensor scale, Tensor zero_point, Tensor result_scale, Tensor result_zero_point,
//     int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad) -> Tensor
//
// q = clamp(round(x * (1 / s)) + z, qmin, qmax) in float32, round half to even, NaN to qmin; x' = (q - z) *
// s. The zero point is added after rounding, for one scale and for many, as PyTorch does with integer zero
// points; its per-channel operator with floating-point ones rounds x * (1 / s) + z, which moves ties by a
// code where z is odd. axis -1: scale and zero_point have one element; axis >= 0: one element for each index
// of that dimension. Memory formats are kept.
//
// average_codes: of codes [N, C, H, W] or [N, C, L] of all 8 bits to codes of another scale: round(float(S) * m) + z', clamped, where
// S is the exact sum of q - z over the window, m = (s / s') / n in float32, and n the window's elements, with its padding
// where count_include_pad says so; half to even. An empty kernel_size is the whole image or sequence. Not differentiable.
//
// The functions that take QParams know every granularity: groups, tokens and blocks are laid out as rows and
// go through the same operators, one channel for each scale.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/base/export.h"
#include "ulp/quant/scheme/scheme.h"

namespace ulp::quant {

/// Codes of a floating-point tensor, as plain uint8 or int8. Not differentiable.
ULP_API at::Tensor quantize(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& zero_point,
                            int64_t axis, int64_t qmin, int64_t qmax, at::ScalarType dtype);
/// The same.
ULP_API at::Tensor quantize(const at::Tensor& x, const QParams& qparams);

/// float32 values of uint8, int8 or int32 codes. Not differentiable.
ULP_API at::Tensor dequantize(const at::Tensor& q, const at::Tensor& scale, const at::Tensor& zero_point,
                              int64_t axis);
/// The same.
ULP_API at::Tensor dequantize(const at::Tensor& q, const QParams& qparams);

/// quantize then dequantize, computed in float32, in the dtype of x. Gradient to x: straight through where
/// the rounded code lies inside [qmin, qmax], 0 outside. One pass each way; what is kept for the backward
/// pass is one bit an element. qmin and qmax lie in [-32768, 65535].
ULP_API at::Tensor fake_quantize(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& zero_point,
                                 int64_t axis, int64_t qmin, int64_t qmax);
/// The same.
ULP_API at::Tensor fake_quantize(const at::Tensor& x, const QParams& qparams);

/// fake_quantize with trained parameters (Esser et al. 2020, "Learned step size quantization"; the zero point
/// as in Bhalgat et al. 2020, "LSQ+"): scale and zero_point are floating-point tensors, the zero point is
/// rounded half to even and clamped to [qmin, qmax] for use. With x' the result and q the unclamped code,
/// gradients per element, summed over those that share a scale:
///   dx = 1 inside, 0 outside
///   ds = (x' - x) / s inside, q_limit - z outside;   dz = 0 inside, -s outside
/// ds and dz are multiplied by gradient_factor (1 / sqrt(elements * qmax) in the paper). An integer zero
/// point gets no gradient.
ULP_API at::Tensor fake_quantize_learned(const at::Tensor& x, const at::Tensor& scale,
                                         const at::Tensor& zero_point, int64_t axis, int64_t qmin,
                                         int64_t qmax, double gradient_factor = 1.0);

}  // namespace ulp::quant
