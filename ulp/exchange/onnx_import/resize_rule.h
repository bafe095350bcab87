// How ONNX resizes along one dimension: which pixels of the input make a pixel of the result, and how much of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// What a Resize or an Upsample says of all its dimensions.
struct ResizeRule {
  enum class Mode : uint8_t { nearest, linear, cubic };
  Mode mode = Mode::nearest;
  std::string place;     ///< coordinate_transformation_mode
  std::string rounding;  ///< nearest_mode; empty: before opset 11, towards 0, but up where it shrinks
  double cubic = -0.75;  ///< cubic_coeff_a
  bool excludes_outside = false;  ///< exclude_outside
  bool antialias = false;         ///< wider windows where it shrinks
  double outside = 0;             ///< extrapolation_value, of tf_crop_and_resize
};
/// Refuses words that ONNX has not.
ResizeRule resize_rule(const Call& call);

/// One dimension: its sizes, and the factor between them, which the file says or which follows from them.
struct ResizedAxis {
  int64_t in = 0, out = 0;
  float scale = 1;
  bool by_scale = false;   ///< the file says the factor
  float from = 0, to = 1;  ///< the part of the input, of tf_crop_and_resize
  bool changes() const { return in != out || scale != 1; }
};

/// The pixel of the input for each of the result, as ONNX Runtime finds it. Refuses a pixel between two neighbours by which runtimes
/// differ.
std::vector<int64_t> nearest_pixels(const Call& call, const ResizeRule& rule, const ResizedAxis& axis);

/// The shares [in, out] of the pixels in each of the result; all 0 for one outside of the input, which tf_crop_and_resize gives a
/// number of its own.
struct Shares {
  std::vector<float> shares;
  std::vector<bool> outside;  ///< of each pixel of the result
};
Shares pixel_shares(const Call& call, const ResizeRule& rule, const ResizedAxis& axis);

}  // namespace ulp::exchange::onnx_import
