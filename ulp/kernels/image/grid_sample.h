// Pixels at places that a grid gives: aten::grid_sampler_2d on dense NHWC buffers.
#pragma once

#include <array>
#include <cstdint>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/parallel.h"

namespace ulp {
namespace kernels {

/// The interpolation between pixels.
enum class GridMode : uint8_t { bilinear, nearest, bicubic };
/// The padding beyond the edge: zeros, the edge, or the image mirrored.
enum class GridBorder : uint8_t { zeros, border, reflection };

/// The images and the grid of one call.
struct GridShape {
  int64_t in_h = 1, in_w = 1, channels = 1;
  int64_t pixels = 1;  ///< of a result
  GridMode mode = GridMode::bilinear;
  GridBorder border = GridBorder::zeros;
  bool align_corners = false;  ///< -1 and 1 are the centres of the outer pixels, not their edges
};

/// x: [batch, in_h, in_w, channels], grid: [batch, pixels, 2] of places (across, down) in [-1, 1] ->
/// y: [batch, pixels, channels], by PyTorch's rules in float32. Any grid is safe: a place that is no number is zeros
/// with GridBorder::zeros and the first row or column with the others. Not in place.
ULP_API void grid_sample(const GridShape& shape, int64_t batch, const float* x, const float* grid, float* y,
                         const Parallel& parallel);

}  // namespace kernels

/// The words of engine files.
template <>
struct EnumNames<kernels::GridMode> {
  using enum kernels::GridMode;
  static constexpr std::array<Word<kernels::GridMode>, 3> list = {
      {{bilinear, "bilinear"}, {nearest, "nearest"}, {bicubic, "bicubic"}}};
};
template <>
struct EnumNames<kernels::GridBorder> {
  using enum kernels::GridBorder;
  static constexpr std::array<Word<kernels::GridBorder>, 3> list = {
      {{zeros, "zeros"}, {border, "border"}, {reflection, "reflection"}}};
};

}  // namespace ulp
