// Pooling on dense NHWC buffers.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/element.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// Shape of one pooling; the rules for padding and ceil_mode are PyTorch's.
struct PoolShape {
  int64_t in_h = 1, in_w = 1, channels = 1;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_h = 0, pad_w = 0;            ///< on both sides, at most half of the kernel
  int64_t dilation_h = 1, dilation_w = 1;  ///< max_pool only
  bool ceil_mode = false;                  ///< rounds the output size up, if the last window starts inside

  int64_t out_h() const { return out(in_h, kernel_h, stride_h, pad_h, dilation_h); }
  int64_t out_w() const { return out(in_w, kernel_w, stride_w, pad_w, dilation_w); }

 private:
  int64_t out(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) const {
    const int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
    int64_t size = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    if (ceil_mode && (size - 1) * stride >= in + pad) --size;
    return size;
  }
};

/// Throws ulp::Error on sizes below 1, padding of more than half a kernel, or a kernel larger than the padded
/// image. The functions below expect a shape that passes.
ULP_API void check_pool(const PoolShape& shape);

/// f32, bf16 or u8 (input and output share a quantizer); a NaN in the window wins.
ULP_API void max_pool(DataType type, const PoolShape& shape, int64_t batch, const void* x, void* y, Isa isa,
                      const Parallel& parallel);

/// f32, bf16 (summed in f32) or u8 (y = round(sum(x - zx) * (sx / sy / count)) + zy). `count_include_pad`
/// divides by the window's size including the padding, as PyTorch does by default.
ULP_API void avg_pool(DataType type, const PoolShape& shape, bool count_include_pad, int64_t batch,
                      const void* x, void* y, Affine xq, Affine yq, Isa isa, const Parallel& parallel);

/// Averages of s8 codes, which x and y hold moved by 128, in the codes' own scale: y = sum(x) / count to the
/// nearest code, ties away from code 0 of s8. So LiteRT's AVERAGE_POOL_2D rounds. Padding that counts has the
/// code `zero_point`, of u8.
ULP_API void avg_pool_u8(const PoolShape& shape, bool count_include_pad, int64_t batch, const uint8_t* x,
                         uint8_t* y, int32_t zero_point, Isa isa, const Parallel& parallel);

/// The average over all `pixels` of each image: [batch, pixels, channels] -> [batch, channels].
ULP_API void global_avg_pool(DataType type, int64_t batch, int64_t pixels, int64_t channels, const void* x,
                             void* y, Affine xq, Affine yq, Isa isa, const Parallel& parallel);

}  // namespace ulp::kernels
