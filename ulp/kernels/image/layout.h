// Moving channels: NCHW to NHWC and back, joining, cutting and shuffling them.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// x: [batch, channels, pixels] -> y: [batch, pixels, channels], elements of 1, 2 or 4 bytes; not in place.
ULP_API void nchw_to_nhwc(int64_t element_size, const void* x, void* y, int64_t batch, int64_t channels,
                          int64_t pixels, Isa isa, const Parallel& parallel);

/// x: [batch, pixels, channels] -> y: [batch, channels, pixels], elements of 1, 2 or 4 bytes; not in place.
ULP_API void nhwc_to_nchw(int64_t element_size, const void* x, void* y, int64_t batch, int64_t channels,
                          int64_t pixels, const Parallel& parallel);

/// Copies x: [rows, channels] into columns [offset, offset + channels) of y: [rows, total_channels].
ULP_API void copy_channels(int64_t element_size, const void* x, void* y, int64_t rows, int64_t channels,
                           int64_t total_channels, int64_t offset, const Parallel& parallel);

/// Copies columns [offset, offset + channels) of x: [rows, total_channels] to y: [rows, channels].
ULP_API void slice_channels(int64_t element_size, const void* x, void* y, int64_t rows, int64_t channels,
                            int64_t total_channels, int64_t offset, const Parallel& parallel);

/// Column g * (channels / groups) + i of x becomes column i * groups + g of y, both [rows, channels],
/// elements of 1, 2 or 4 bytes; not in place. `groups` divides `channels`.
ULP_API void shuffle_channels(int64_t element_size, const void* x, void* y, int64_t rows, int64_t channels,
                              int64_t groups, const Parallel& parallel);

/// Sizes of depth_to_space.
struct DepthToSpaceShape {
  int64_t in_h = 1, in_w = 1;
  int64_t channels = 1;  ///< of the output
  int64_t factor_h = 1, factor_w = 1;
  int64_t out_h = 1, out_w = 1;  ///< up to in * factor: what is beyond is left out
};

/// x: [batch, in_h, in_w, factor_h * factor_w * channels] -> y: [batch, out_h, out_w, channels]: pixel (i, j)
/// of y has part (i % factor_h) * factor_w + j % factor_w of the channels of pixel (i / factor_h, j /
/// factor_w) of x. Not in place.
ULP_API void depth_to_space(int64_t element_size, const DepthToSpaceShape& shape, int64_t batch,
                            const void* x, void* y, const Parallel& parallel);

}  // namespace ulp::kernels
