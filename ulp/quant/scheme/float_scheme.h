// Small floating-point formats (fp8, fp6, fp4) as the target of quantization: a scale, and no zero point.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "ulp/base/export.h"
#include "ulp/quant/scheme/granularity.h"

namespace ulp::quant {

/// Which format a tensor is cast to after division by its scale. fp8_e4m3fn ends at 448 and saturates,
/// fp8_e5m2 ends at 57344 and overflows to infinity, as formats/convert.h says for each.
struct ULP_API FloatScheme {
  std::string format = "fp8_e4m3fn";  ///< a floating-point format of at most 8 bits; "e4m3fn" is enough
  Granularity granularity = PerTensor{};

  /// Largest finite number of the format.
  double max() const;
  /// Throws ulp::Error for an unknown format, an integer one, one of more than 8 bits, or a bad granularity.
  void validate() const;
  /// "fp8_e4m3fn per tensor".
  std::string to_string() const;
  bool operator==(const FloatScheme&) const = default;
};

/// x ~ value(code) * scale. The factor that some frameworks call scale, and multiply by, is 1 / scale.
struct FloatQParams {
  at::Tensor scale;  ///< f32, of scale_shape()
  FloatScheme scheme;
};

/// scale = amax / max of the format, at least 2^-126; 1 where amax is 0, infinite or NaN ("current scaling").
/// `amax`: f32, of scale_shape() or one element without dimension. Throws ulp::Error for a negative amax.
ULP_API FloatQParams choose_qparams(const at::Tensor& amax, const FloatScheme& scheme);
/// Chooses parameters from the largest magnitude in each part of the tensor. Throws ulp::Error for an empty
/// tensor or a shape without such parts.
ULP_API FloatQParams qparams_of(const at::Tensor& x, const FloatScheme& scheme);

/// Codes of round(x / scale), one in a byte: uint8 of the shape of x. The division is rounded to float32
/// first. NaN stays NaN where the format has it.
ULP_API at::Tensor quantize(const at::Tensor& x, const FloatQParams& params);
/// float32 values of codes: value(code) * scale.
ULP_API at::Tensor dequantize(const at::Tensor& codes, const FloatQParams& params);
/// dequantize(quantize(x)), without gradient.
ULP_API at::Tensor quantize_dequantize(const at::Tensor& x, const FloatQParams& params);

}  // namespace ulp::quant
