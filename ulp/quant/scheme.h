// How real numbers map to integers: the scheme (which integers, how the range is cut) and its parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <variant>

#include "ulp/base/export.h"

namespace ulp::quant {

/// One scale and zero point for the whole tensor.
struct PerTensor {
  bool operator==(const PerTensor&) const = default;
};
/// One scale and zero point for each index of dimension `axis`.
struct PerChannel {
  int64_t axis = 0;
  bool operator==(const PerChannel&) const = default;
};
using Granularity = std::variant<PerTensor, PerChannel>;

enum class Mapping : uint8_t {
  symmetric,  ///< zero_point fixed: 0 (signed) or the middle code (unsigned)
  affine      ///< zero_point chosen so that the range [min, max] is used fully
};
enum class Range : uint8_t {
  full,       ///< signed 8 bits: [-128, 127]
  restricted  ///< signed 8 bits: [-127, 127]; symmetric around zero, so products carry no bias
};

/// Which integers a tensor is mapped to, and how.
struct ULP_API Scheme {
  int64_t bits = 8;        ///< 2 to 8
  bool is_signed = false;  ///< s8 or u8 storage
  Mapping mapping = Mapping::affine;
  Range range = Range::full;
  Granularity granularity = PerTensor{};

  int64_t qmin() const;
  int64_t qmax() const;
  /// at::kChar or at::kByte.
  at::ScalarType dtype() const;
  /// The channel dimension, or -1 for one scale in the whole tensor; as the `axis` of the ulp:: operators.
  int64_t axis() const;
  /// Throws ulp::Error for bits outside 2..8, a negative axis, or a restricted range of unsigned codes.
  void validate() const;
  /// "u8 affine per tensor", "s8 symmetric restricted per channel 0".
  std::string to_string() const;
  bool operator==(const Scheme&) const = default;
};

/// The parameters of one tensor: x ~ (q - zero_point) * scale.
struct QParams {
  at::Tensor scale;       ///< f32, [1] or [channels]
  at::Tensor zero_point;  ///< i32, as scale
  Scheme scheme;
  int64_t axis() const { return scheme.axis(); }
};

/// Scale and zero point for values in [min, max] (f32, one element or one per channel), bit for bit as
/// PyTorch's observers choose them: the range is widened to include 0 and the scale is at least 2^-23.
///   affine:    s = (max - min) / (qmax - qmin), z = clamp(qmin - round(min / s), qmin, qmax)
///   symmetric: s = max(|min|, |max|) / ((qmax - qmin) / 2), z = 0 signed, 2^(bits-1) unsigned
/// Throws ulp::Error for a NaN or infinite bound, or a min above its max.
ULP_API QParams choose_qparams(const at::Tensor& min, const at::Tensor& max, const Scheme& scheme);

}  // namespace ulp::quant
