// Images of another size: nearest, bilinear and bicubic interpolation on dense NHWC buffers, by PyTorch's rules.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/element.h"

namespace ulp::kernels {

/// Where the outputs along one axis come from: output i is (1 - weight[i]) * x[low[i]] + weight[i] *
/// x[high[i]].
struct ResizeAxis {
  int64_t in = 1;
  std::vector<int64_t> low, high;
  std::vector<float> weight;
  int64_t out() const { return static_cast<int64_t>(low.size()); }
};

/// Where they come from in bicubic interpolation: four elements each, and their weights.
struct CubicAxis {
  int64_t in = 1;
  std::vector<int64_t> from;
  std::vector<float> weight;
  int64_t out() const { return static_cast<int64_t>(from.size()) / 4; }
};

// Below, `step` is how far apart the sources of neighbours are: 1 / factor where PyTorch is given a factor; 0 stands
// for in / out. Sources are computed in float32, as PyTorch does. Sizes >= 1.

/// low[i] = floor(i * step), as aten::upsample_nearest2d; with `exact` floor((i + 0.5) * step), as
/// aten::_upsample_nearest_exact2d.
ULP_API ResizeAxis nearest_axis(int64_t in, int64_t out, float step = 0, bool exact = false);
/// The source of output i is i (in - 1) / (out - 1) with `align_corners`, else max((i + 0.5) step - 0.5, 0), as
/// aten::upsample_bilinear2d.
ULP_API ResizeAxis bilinear_axis(int64_t in, int64_t out, bool align_corners, float step = 0);
/// Makes a cubic axis; the weights are those of the cubic convolution of Keys 1981 with a = -0.75, and
/// elements beyond the edge are the edge, as aten::upsample_bicubic2d.
ULP_API CubicAxis cubic_axis(int64_t in, int64_t out, bool align_corners, float step = 0);

/// x: [batch, rows.in, columns.in, channels] -> y: [batch, rows.out(), columns.out(), channels]; the elements
/// at `low` of both axes. Elements of any size in bytes; not in place.
ULP_API void resize_nearest(int64_t element_size, const ResizeAxis& rows, const ResizeAxis& columns,
                            int64_t batch, int64_t channels, const void* x, void* y,
                            const Parallel& parallel);

/// Resizes with interpolation: first along the columns, then along the rows, in f32. f32; bf16, rounded
/// once; or u8 codes, whose quantizer stays, rounded half to even. Not in place.
ULP_API void resize_bilinear(DataType type, const ResizeAxis& rows, const ResizeAxis& columns, int64_t batch,
                             int64_t channels, const void* x, void* y, const Parallel& parallel);

/// Resizes with four elements of four rows each. f32; or bf16, rounded once. Not in place.
ULP_API void resize_bicubic(DataType type, const CubicAxis& rows, const CubicAxis& columns, int64_t batch,
                            int64_t channels, const void* x, void* y, const Parallel& parallel);

/// The four weights of cubic convolution (a = -0.75) for a point `t` in [0, 1) behind the second element.
ULP_API std::array<float, 4> cubic_weights(float t);

}  // namespace ulp::kernels
