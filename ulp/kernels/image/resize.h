// Images of another size: nearest and bilinear interpolation on dense NHWC buffers, by PyTorch's rules.
#pragma once

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

/// low[i] = floor(i * in / out) in float32, as aten::upsample_nearest2d without given scales. Sizes >= 1.
ULP_API ResizeAxis nearest_axis(int64_t in, int64_t out);
/// The source of output i is i (in - 1) / (out - 1) with `align_corners`, else max((i + 0.5) in / out - 0.5,
/// 0), in float32, as aten::upsample_bilinear2d without given scales. Sizes >= 1.
ULP_API ResizeAxis bilinear_axis(int64_t in, int64_t out, bool align_corners);

/// x: [batch, rows.in, columns.in, channels] -> y: [batch, rows.out(), columns.out(), channels]; the elements
/// at `low` of both axes. Elements of any size in bytes; not in place.
ULP_API void resize_nearest(int64_t element_size, const ResizeAxis& rows, const ResizeAxis& columns,
                            int64_t batch, int64_t channels, const void* x, void* y,
                            const Parallel& parallel);

/// The same with interpolation: first along the columns, then along the rows, in f32. f32; bf16, rounded
/// once; or u8 codes, whose quantizer stays, rounded half to even. Not in place.
ULP_API void resize_bilinear(DataType type, const ResizeAxis& rows, const ResizeAxis& columns, int64_t batch,
                             int64_t channels, const void* x, void* y, const Parallel& parallel);

}  // namespace ulp::kernels
