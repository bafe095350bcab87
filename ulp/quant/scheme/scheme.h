// How real numbers map to integers: the scheme (which integers, how the range is cut) and its parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/quant/scheme/granularity.h"

namespace ulp::quant {

/// Whether the zero point is free.
enum class Mapping : uint8_t {
  symmetric,  ///< zero_point fixed: 0 (signed) or a middle code (unsigned; see choose_scale_zero)
  affine      ///< zero_point chosen so that the range [min, max] is used fully
};
/// Whether the lowest code is used.
enum class Range : uint8_t {
  full,       ///< signed 8 bits: [-128, 127]
  restricted  ///< signed 8 bits: [-127, 127]; symmetric around zero, so products carry no bias
};

}  // namespace ulp::quant

template <>
struct ulp::EnumNames<ulp::quant::Mapping> {
  static constexpr std::array<Word<quant::Mapping>, 2> list = {
      {{quant::Mapping::symmetric, "symmetric", "the zero point is fixed"},
       {quant::Mapping::affine, "affine", "the zero point moves, so that the range is used fully"}}};
};
template <>
struct ulp::EnumNames<ulp::quant::Range> {
  static constexpr std::array<Word<quant::Range>, 2> list = {
      {{quant::Range::full, "full", "all codes"},
       {quant::Range::restricted, "restricted", "signed codes without the lowest one"}}};
};

namespace ulp::quant {

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
  bool per_tensor() const { return std::holds_alternative<PerTensor>(granularity); }
  bool per_channel() const { return std::holds_alternative<PerChannel>(granularity); }
  /// The channel dimension, or -1 for one scale in the whole tensor; as the `axis` of the ulp:: operators.
  /// Throws ulp::Error for the granularities that these operators do not know.
  int64_t axis() const;
  /// Throws ulp::Error for bits outside 2..8, a bad granularity, or a restricted range of unsigned codes.
  void validate() const;
  void visit_fields(FieldVisitor& visit);
  /// "u8 affine per tensor", "s8 symmetric restricted per channel 0", "s4 symmetric per group 32".
  std::string to_string() const;
  bool operator==(const Scheme&) const = default;
};

/// The parameters of one tensor: x ~ (q - zero_point) * scale.
struct QParams {
  at::Tensor scale;       ///< f32, of scale_shape(): [1] per tensor, [channels] per channel
  at::Tensor zero_point;  ///< i32, as scale
  Scheme scheme;
  int64_t axis() const { return scheme.axis(); }
};

/// Scale and zero point of one part of a tensor.
struct ScaleZero {
  float scale = 1;
  int32_t zero_point = 0;
};

/// Scale and zero point for values in [min, max], bit for bit as PyTorch's observers choose them: the range
/// is widened to include 0 and the scale is at least 2^-23.
///   affine:    s = (max - min) / (qmax - qmin), z = clamp(qmin - round(min / s), qmin, qmax)
///   symmetric: s = max(|min|, |max|) / ((qmax - qmin) / 2), z = 0 signed; unsigned 128 at 8 bits, below that
///              (qmin + qmax) / 2 rounded down: 63 at 7 bits
/// fp32 throughout; a range wider than the largest fp32 number is divided in double, and its outermost codes may
/// stand for more than fp32 holds.
/// Bounds must be finite and ordered.
ULP_API ScaleZero choose_scale_zero(float min, float max, const Scheme& scheme);

/// Chooses parameters for tensors of bounds (f32): one element, one per channel, or of the granularity's
/// scale_shape(). Throws ulp::Error for a NaN or infinite bound, or a min above its max.
ULP_API QParams choose_qparams(const at::Tensor& min, const at::Tensor& max, const Scheme& scheme);

}  // namespace ulp::quant
