// How a convolution of a training step is cut into blocks of pixels, which the kernels of every instruction
// set and their callers share: by its sizes alone, never by threads or vectors. Everything has internal
// linkage.
#pragma once

#include "ulp/kernels/training/conv_products_ops.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kConvPanel = 32;       ///< channels of a panel of packed weights; of the last one 16 or 32
constexpr int64_t kConvScratch = 32768;  ///< floats that a block copies, with its padding
constexpr int64_t kConvTaps = 256;

/// A block of the pixels of a result: `images` whole ones, or a part of one.
struct ConvBlocks {
  int64_t images = 1, height = 1, width = 1;  ///< of a block
  int64_t down = 1, across = 1;               ///< blocks of an image
  int64_t units(int64_t batch) const { return (batch + images - 1) / images * down * across; }
};

inline int64_t conv_ceil(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
inline int64_t conv_floor(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/// The pixels of the other side that `n` neighbours need: (n - 1) step / divisor + span.
struct ConvReach {
  int64_t step, divisor, span;
  int64_t of(int64_t n) const { return (n - 1) * step / divisor + span; }
};

inline ConvBlocks cut_blocks(int64_t height, int64_t width, ConvReach down, ConvReach across,
                             int64_t channels, int64_t most_pixels) {
  ConvBlocks made{1, height, width};
  while (made.width > 1 &&
         (down.of(1) * across.of(made.width) * channels > kConvScratch || made.width > most_pixels))
    made.width = conv_ceil(made.width, 2);
  while (made.height > 1 && (down.of(made.height) * across.of(made.width) * channels > kConvScratch ||
                             made.height * made.width > most_pixels)) {
    const int64_t even = conv_ceil(height, conv_ceil(height, made.height) + 1);
    made.height = even < made.height ? even : made.height - 1;
  }
  made.down = conv_ceil(height, made.height);
  made.across = conv_ceil(width, made.width);
  if (made.down == 1 && made.across == 1) {
    const int64_t room = kConvScratch / (down.of(height) * across.of(width) * channels);
    const int64_t wanted = most_pixels / (height * width);
    made.images = wanted < room ? wanted : room;
    if (made.images < 1) made.images = 1;
  }
  return made;
}

inline ConvBlocks forward_blocks(const StepConv& conv, int64_t most_pixels) {
  return cut_blocks(conv.out_height, conv.out_width,
                    {conv.stride_height, 1, (conv.kernel_height - 1) * conv.dilation_height + 1},
                    {conv.stride_width, 1, (conv.kernel_width - 1) * conv.dilation_width + 1},
                    conv.group_inputs(), most_pixels);
}
inline ConvBlocks conv_forward_blocks(const StepConv& conv) {
  return forward_blocks(conv, 512);
}
inline ConvBlocks conv_weight_blocks(const StepConv& conv) {
  return forward_blocks(conv, 256);
}
inline ConvBlocks conv_input_blocks(const StepConv& conv) {
  return cut_blocks(
      conv.in_height, conv.in_width,
      {1, conv.stride_height, (conv.kernel_height - 1) * conv.dilation_height / conv.stride_height + 3},
      {1, conv.stride_width, (conv.kernel_width - 1) * conv.dilation_width / conv.stride_width + 3},
      conv.group_outputs(), 512);
}

/// The width of a panel from `column` on.
inline int64_t panel_width(int64_t columns, int64_t column) {
  return columns - column > kConvPanel / 2 ? kConvPanel : kConvPanel / 2;
}
/// Columns of all panels.
inline int64_t panel_columns(int64_t columns) {
  return conv_ceil(columns, kConvPanel / 2) * (kConvPanel / 2);
}

/// Taps of one dimension that reach a pixel of the input with (pixel + pad) % stride = phase: `count` of
/// them, the last one first, `last`, last - step, ... Neighbours are `move` pixels of the result apart.
struct ConvPhase {
  int64_t last = 0, step = 1, count = 0, move = 1;
};
inline ConvPhase conv_phase(int64_t kernel, int64_t stride, int64_t dilation, int64_t phase) {
  ConvPhase made;
  for (int64_t k = kernel - 1; k >= 0; --k) {
    if (k * dilation % stride != phase) continue;
    if (made.count == 0) made.last = k;
    if (made.count == 1) made.step = made.last - k;
    ++made.count;
  }
  made.move = made.step * dilation / stride;
  return made;
}

/// Rows of the result of a weight gradient that a thread computes at once.
constexpr int64_t kConvWeightRows = 12;

/// Runs of numbers of a window that lie side by side in a copied block: rows of the kernel, or single taps.
inline int64_t conv_run_taps(const StepConv& conv) {
  return conv.dilation_width == 1 ? conv.kernel_width : 1;
}

}  // namespace
}  // namespace ulp::kernels
