// Quantizes a small matrix step by step: range, parameters, codes, values, errors.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <variant>

#include "ulp/base/export.h"
#include "ulp/quant/scheme/float_scheme.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/scheme/scheme.h"

namespace ulp::quant {

/// A matrix from text: rows parted by ';', numbers by ',' ("1.5,-2;0.3,4"); blanks around numbers are fine.
/// float32 [rows, columns]. Throws ulp::Error for rows of different lengths and for what is no finite number.
ULP_API at::Tensor parse_matrix(const std::string& text);

/// Integers or a small floating-point format.
using Target = std::variant<Scheme, FloatScheme>;

/// Bounds to use in place of the values' own.
struct ClipRange {
  double min = 0, max = 0;
};

/// One tensor and what a recipe makes of it.
struct Explanation {
  at::Tensor input;    ///< f32
  std::string target;  ///< "s8 symmetric restricted per tensor"
  double lowest,
      highest;          ///< the first and last code; of a floating-point format its lowest and largest number
  at::Tensor min, max;  ///< f32, flat: bounds of each part before 0 is included
  at::Tensor scale;     ///< f32, flat, in the order of the parts
  at::Tensor zero_point;  ///< i32, flat; undefined for a floating-point format
  std::vector<std::string>
      parts;          ///< "all", "channel 0", "row 1", "row 0, columns 2-3", "rows 0-1, columns 2-3"
  at::Tensor codes;   ///< i32, as input
  at::Tensor values;  ///< f32, as input: dequantized
  QuantError error;
};

/// `x`: a matrix. Throws ulp::Error for another tensor, a bad target, or a clip range that is not finite with
/// min < max.
ULP_API Explanation explain(const at::Tensor& x, const Target& target, std::optional<ClipRange> clip = {});

}  // namespace ulp::quant
