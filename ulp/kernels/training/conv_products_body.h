// Convolutions of a training step as products of windows with packed panels of weights. Included once by a file per instruction
// set, which gives its vectors as `ProductLanes` or as what ULP_TILE_LANES says, and names its table with ULP_CONV_PRODUCT_OPS; with
// ULP_CONV_OF_WORDS it has products of words alone, without gradients of weights. Everything here has internal linkage.
#include "ulp/kernels/training/conv_blocks.h"
#include "ulp/kernels/training/conv_products_ops.h"

#ifndef ULP_TILE_LANES
#define ULP_TILE_LANES ProductLanes
#endif

namespace ulp::kernels {
namespace {

using ConvLanes = ULP_TILE_LANES;
using ConvVector = ConvLanes::F;
constexpr int64_t kConvLanes = ConvLanes::kLanes;
constexpr int64_t kGridPixels = 512;  ///< of a block at most
constexpr int64_t kDeepWindow = 64;   ///< numbers of a window from which on results are asked for ahead

/// Rows of a tile: as many sums as registers hold beside what they are made of.
template <int kVectors>
constexpr int kTileRows = kConvLanes == 16 ? 12 : 12 / kVectors;

/// Numbers that are read next: they are asked for in slices while others are computed.
struct ReadAhead {
  const float* at = nullptr;
  int64_t floats = 0;
  /// Slice i of n.
  void ask(int64_t i, int64_t n) const {
    constexpr int64_t kLine = 16;
    for (int64_t f = floats * i / n / kLine * kLine; f < floats * (i + 1) / n; f += kLine)
      __builtin_prefetch(at + f, 0, 2);
  }
};

/// A block of pixels whose windows are multiplied by the panels of weights: taps[t] + k is the place of the
/// numbers of a window from its first one on.
struct TapGrid {
  int64_t images, rows, columns;
  const float* a;
  int64_t a_image, a_row, a_column;
  float* y;
  int64_t y_image, y_row, y_column;
  int64_t taps;
  const int64_t* offsets;
  int64_t inner;
  const float* packed;
  int64_t outputs;
  const float* bias;
  bool adds, relu;
  ReadAhead ahead;
};

/// n columns from p on, which may be those of a whole vector.
inline __attribute__((always_inline)) ConvVector load_some(const float* p, int64_t n) {
  return n >= kConvLanes ? ConvLanes::load(p) : ConvLanes::load_first(p, n);
}

/// Loads n columns if kPartial, or a vector.
template <bool kPartial>
inline __attribute__((always_inline)) ConvVector load_columns_of(const float* p, int64_t n) {
  if constexpr (kPartial) {
    return ConvLanes::load_first(p, n);
  } else {
    return ConvLanes::load(p);
  }
}

/// kRows pixels and kVectors vectors of channels from `column` on, the last one of n channels.
template <int kRows, int kVectors>
void sum_windows(const TapGrid& p, const float* const* a, float* const* y, const float* panel,
                 int64_t panel_step, int64_t column, int64_t n) {
  ConvVector sums[kRows][kVectors];
  constexpr int kLast = kVectors - 1;
  if (p.adds) {
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
      for (int v = 0; v < kLast; ++v) sums[m][v] = ConvLanes::load(y[m] + column + v * kConvLanes);
      sums[m][kLast] = load_some(y[m] + column + kLast * kConvLanes, n);
    }
  } else {
    ConvVector start[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      start[v] = p.bias == nullptr ? ConvLanes::set1(0.0F)
                                   : load_some(p.bias + column + v * kConvLanes, v == kLast ? n : kConvLanes);
    }
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[m][v] = start[v];
    }
  }
  const float* b = panel;
  const int64_t inner = p.inner;
  for (int64_t t = 0; t < p.taps; ++t) {
    const float* rows[kRows];
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) rows[m] = a[m] + p.offsets[t];
    for (int64_t k = 0; k < inner; ++k, b += panel_step) {
      ConvVector right[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) right[v] = ConvLanes::load(b + v * kConvLanes);
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        const ConvVector left = ConvLanes::set1(rows[m][k]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[m][v] = ConvLanes::fma(left, right[v], sums[m][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      ConvVector sum = sums[m][v];
      if (p.relu) sum = ConvLanes::max(ConvLanes::set1(0.0F), sum);
      float* to = y[m] + column + v * kConvLanes;
      if (v < kLast || n >= kConvLanes) {
        ConvLanes::store(to, sum);
      } else {
        ConvLanes::store_first(to, sum, n);
      }
    }
  }
}

template <int kRows, int kVectors>
void sum_windows_of(int64_t rows, const TapGrid& p, const float* const* a, float* const* y,
                    const float* panel, int64_t panel_step, int64_t column, int64_t n) {
  if (rows == kRows) return sum_windows<kRows, kVectors>(p, a, y, panel, panel_step, column, n);
  if constexpr (kRows > 1) sum_windows_of<kRows - 1, kVectors>(rows, p, a, y, panel, panel_step, column, n);
}

/// All pixels of a grid for kVectors vectors of channels, in tiles of nearly one size.
template <int kVectors>
void sum_pixels(int64_t pixels, const TapGrid& p, const float* const* a, float* const* y, const float* panel,
                int64_t panel_step, int64_t column, int64_t n) {
  const int64_t all = conv_ceil(pixels, kTileRows<kVectors>);
  int64_t tiles = all;
  const bool deep = p.taps * p.inner >= kDeepWindow;
  for (int64_t done = 0; done < pixels; --tiles) {
    const int64_t rows = conv_ceil(pixels - done, tiles);
    if (column == 0) p.ahead.ask(all - tiles, all);
    // The results of the next tile, for writing, where a tile takes its time.
    for (int64_t m = done + rows; deep && m < done + 2 * rows && m < pixels; ++m) {
      for (int64_t v = 0; v < kVectors; ++v) __builtin_prefetch(y[m] + column + v * kConvLanes, 1, 3);
    }
    sum_windows_of<kTileRows<kVectors>, kVectors>(rows, p, a + done, y + done, panel, panel_step, column, n);
    done += rows;
  }
}

void sum_grid(const TapGrid& p) {
  const float* a[kGridPixels];
  float* y[kGridPixels];
  int64_t pixels = 0;
  for (int64_t i = 0; i < p.images; ++i) {
    for (int64_t r = 0; r < p.rows; ++r) {
      const float* from = p.a + i * p.a_image + r * p.a_row;
      float* to = p.y + i * p.y_image + r * p.y_row;
      for (int64_t c = 0; c < p.columns; ++c, ++pixels) {
        a[pixels] = from + c * p.a_column;
        y[pixels] = to + c * p.y_column;
      }
    }
  }
  const float* panel = p.packed;
  for (int64_t first = 0; first < p.outputs; first += kConvPanel) {
    const int64_t width = panel_width(p.outputs, first);
    const int64_t end = p.outputs - first < width ? p.outputs : first + width;
    for (int64_t column = first; column < end; column += 2 * kConvLanes) {
      const int64_t left = end - column;
      if (left > kConvLanes) {
        sum_pixels<2>(pixels, p, a, y, panel + (column - first), width, column, left - kConvLanes);
      } else {
        sum_pixels<1>(pixels, p, a, y, panel + (column - first), width, column, left);
      }
    }
    panel += p.taps * p.inner * width;
  }
}

/// A rectangle of the pixels of an image and of what lies around it.
struct ConvRectangle {
  int64_t top, left, height, width;
};

/// `channels` numbers of each pixel of the rectangle side by side; zeros outside the image.
void copy_rectangle(const float* image, int64_t image_height, int64_t image_width, int64_t stride,
                    int64_t channels, const ConvRectangle& of, float* to) {
  const int64_t row_floats = of.width * channels;
  const int64_t begin = of.left < 0 ? (-of.left < of.width ? -of.left : of.width) : 0;
  const int64_t inside = image_width - of.left < of.width ? image_width - of.left : of.width;
  const int64_t end = inside > begin ? inside : begin;
  for (int64_t r = 0; r < of.height; ++r, to += row_floats) {
    const int64_t y = of.top + r;
    if (y < 0 || y >= image_height) {
      for (int64_t i = 0; i < row_floats; ++i) to[i] = 0.0F;
      continue;
    }
    for (int64_t i = 0; i < begin * channels; ++i) to[i] = 0.0F;
    const float* from = image + (y * image_width + of.left + begin) * stride;
    float* at = to + begin * channels;
    if (stride == channels) {
      __builtin_memcpy(at, from, static_cast<uint64_t>((end - begin) * channels) * sizeof(float));
    } else {
      for (int64_t c = begin; c < end; ++c, from += stride, at += channels) {
        for (int64_t k = 0; k < channels; ++k) at[k] = from[k];
      }
    }
    for (int64_t i = end * channels; i < row_floats; ++i) to[i] = 0.0F;
  }
}

/// Which pixels a unit is.
struct ConvUnit {
  int64_t image, images, top, left, height, width;
};
inline ConvUnit conv_unit(const ConvBlocks& blocks, int64_t batch, int64_t height, int64_t width,
                          int64_t unit) {
  const int64_t part = unit % (blocks.down * blocks.across);
  ConvUnit made{};
  made.image = unit / (blocks.down * blocks.across) * blocks.images;
  made.images = batch - made.image < blocks.images ? batch - made.image : blocks.images;
  made.top = part / blocks.across * blocks.height;
  made.left = part % blocks.across * blocks.width;
  made.height = height - made.top < blocks.height ? height - made.top : blocks.height;
  made.width = width - made.left < blocks.width ? width - made.left : blocks.width;
  return made;
}

/// Rows [first, first + rows) of the image of a unit, or all of its images.
inline ReadAhead rows_ahead(const StepImages& x, int64_t height, int64_t width, const ConvUnit& unit,
                            int64_t first, int64_t rows) {
  const int64_t row = width * x.stride;
  if (unit.images > 1) return {x.data + unit.image * height * row, unit.images * height * row};
  const int64_t begin = first < 0 ? 0 : first, end = first + rows < height ? first + rows : height;
  return {x.data + (unit.image * height + begin) * row, end > begin ? (end - begin) * row : 0};
}
/// Rows that a forward product of a unit reads.
inline ReadAhead windows_ahead(const StepConv& conv, const StepImages& x, const ConvUnit& unit) {
  if (conv.taps() == 1 && conv.stride_width > 1) return {};  // every second pixel
  return rows_ahead(
      x, conv.in_height, conv.in_width, unit, unit.top * conv.stride_height - conv.pad_height,
      (unit.height - 1) * conv.stride_height + (conv.kernel_height - 1) * conv.dilation_height + 1);
}

/// Windows are single pixels of the input: nothing is copied.
inline bool conv_is_direct(const StepConv& conv) {
  return conv.taps() == 1 && conv.pad_height == 0 && conv.pad_width == 0;
}

/// The windows of a unit of a forward product, and the places of its taps.
struct ConvWindows {
  const float* a;
  int64_t a_image, a_row, a_column;
  int64_t taps, inner;
  int64_t offsets[kConvTaps];
};
void forward_windows(const StepConv& conv, const StepImages& x, const ConvUnit& unit, int64_t group,
                     float* scratch, ConvWindows& made) {
  const int64_t channels = conv.group_inputs();
  const int64_t image = conv.in_height * conv.in_width * x.stride;
  const float* from = x.data + unit.image * image + group * channels;
  if (conv_is_direct(conv)) {
    made.a_column = conv.stride_width * x.stride;
    made.a_row = conv.stride_height * conv.in_width * x.stride;
    made.a_image = image;
    made.a = from + unit.top * made.a_row + unit.left * made.a_column;
    made.taps = 1;
    made.inner = channels;
    made.offsets[0] = 0;
    return;
  }
  const ConvRectangle of{
      unit.top * conv.stride_height - conv.pad_height, unit.left * conv.stride_width - conv.pad_width,
      (unit.height - 1) * conv.stride_height + (conv.kernel_height - 1) * conv.dilation_height + 1,
      (unit.width - 1) * conv.stride_width + (conv.kernel_width - 1) * conv.dilation_width + 1};
  made.a_column = conv.stride_width * channels;
  made.a_row = conv.stride_height * of.width * channels;
  made.a_image = of.height * of.width * channels;
  made.a = scratch;
  for (int64_t i = 0; i < unit.images; ++i)
    copy_rectangle(from + i * image, conv.in_height, conv.in_width, x.stride, channels, of,
                   scratch + i * made.a_image);
  const int64_t run = conv_run_taps(conv);
  made.inner = run * channels;
  made.taps = 0;
  for (int64_t h = 0; h < conv.kernel_height; ++h) {
    for (int64_t w = 0; w < conv.kernel_width; w += run) {
      made.offsets[made.taps++] = (h * conv.dilation_height * of.width + w * conv.dilation_width) * channels;
    }
  }
}

void conv_forward(const StepConv& conv, int64_t batch, const StepImages& x, const float* packed,
                  const StepConvResult& y, int64_t begin, int64_t end) {
  alignas(64) float scratch[kConvScratch];
  const ConvBlocks blocks = conv_forward_blocks(conv);
  const int64_t outputs = conv.group_outputs();
  const int64_t group_floats = conv.taps() * conv.group_inputs() * panel_columns(outputs);
  ConvWindows windows;
  for (int64_t u = begin; u < end; ++u) {
    const ConvUnit unit = conv_unit(blocks, batch, conv.out_height, conv.out_width, u);
    const int64_t pixel = (unit.image * conv.out_height + unit.top) * conv.out_width + unit.left;
    ReadAhead ahead;
    if (u + 1 < end && !conv_is_direct(conv))
      ahead = windows_ahead(conv, x, conv_unit(blocks, batch, conv.out_height, conv.out_width, u + 1));
    for (int64_t group = 0; group < conv.groups; ++group) {
      forward_windows(conv, x, unit, group, scratch, windows);
      sum_grid({unit.images,
                unit.height,
                unit.width,
                windows.a,
                windows.a_image,
                windows.a_row,
                windows.a_column,
                y.data + pixel * y.stride + group * outputs,
                conv.out_height * conv.out_width * y.stride,
                conv.out_width * y.stride,
                y.stride,
                windows.taps,
                windows.offsets,
                windows.inner,
                packed + group * group_floats,
                outputs,
                y.bias == nullptr ? nullptr : y.bias + group * outputs,
                y.adds,
                y.relu,
                group == 0 ? ahead : ReadAhead{}});
    }
  }
}

/// Pixels of a unit of one phase, in one dimension: from `first` on in steps of the stride, and the pixel of
/// g that its first tap reads.
struct PhaseLine {
  int64_t first, count, from;
};
inline PhaseLine phase_line(int64_t begin, int64_t size, int64_t pad, int64_t stride, int64_t dilation,
                            int64_t phase, const ConvPhase& taps) {
  int64_t ahead = (phase - (begin + pad)) % stride;
  if (ahead < 0) ahead += stride;
  PhaseLine made{begin + ahead, 0, 0};
  if (ahead < size) made.count = (size - 1 - ahead) / stride + 1;
  made.from = conv_floor(made.first + pad - taps.last * dilation, stride);
  return made;
}

/// The pixels of g that a unit of the input's pixels reads.
struct ConvSource {
  const float* g;  ///< of the group, copied or as it lies
  ConvRectangle of;
  int64_t pixel, row, image;  ///< floats from one to the next
};

/// One phase of a unit: all its pixels are read by the same taps.
void input_phase(const StepConv& conv, const ConvUnit& unit, const ConvSource& source, int64_t down,
                 int64_t across, const float* packed, const StepConvResult& dx, int64_t group,
                 const ReadAhead& ahead) {
  const int64_t inputs = conv.group_inputs(), outputs = conv.group_outputs();
  const ConvPhase rows = conv_phase(conv.kernel_height, conv.stride_height, conv.dilation_height, down);
  const ConvPhase columns = conv_phase(conv.kernel_width, conv.stride_width, conv.dilation_width, across);
  const PhaseLine y = phase_line(unit.top, unit.height, conv.pad_height, conv.stride_height,
                                 conv.dilation_height, down, rows);
  const PhaseLine x = phase_line(unit.left, unit.width, conv.pad_width, conv.stride_width,
                                 conv.dilation_width, across, columns);
  if (y.count == 0 || x.count == 0) return;
  int64_t offsets[kConvTaps];
  int64_t taps = 0;
  const bool joined = columns.count > 1 && columns.move == 1 && source.pixel == outputs;
  for (int64_t h = 0; h < rows.count && columns.count > 0; ++h) {
    for (int64_t w = 0; w < (joined ? 1 : columns.count); ++w)
      offsets[taps++] = h * rows.move * source.row + w * columns.move * source.pixel;
  }
  const int64_t pixel = (unit.image * conv.in_height + y.first) * conv.in_width + x.first;
  const float* from =
      taps == 0 ? source.g
                : source.g + (y.from - source.of.top) * source.row + (x.from - source.of.left) * source.pixel;
  sum_grid({unit.images,
            y.count,
            x.count,
            from,
            source.image,
            source.row,
            source.pixel,
            dx.data + pixel * dx.stride + group * inputs,
            conv.in_height * conv.in_width * dx.stride,
            conv.stride_height * conv.in_width * dx.stride,
            conv.stride_width * dx.stride,
            taps,
            offsets,
            joined ? columns.count * outputs : outputs,
            packed,
            inputs,
            dx.bias == nullptr ? nullptr : dx.bias + group * inputs,
            dx.adds,
            dx.relu,
            ahead});
}

void conv_input_gradient(const StepConv& conv, int64_t batch, const StepImages& g, const float* packed,
                         const StepConvResult& dx, int64_t begin, int64_t end) {
  alignas(64) float scratch[kConvScratch];
  const ConvBlocks blocks = conv_input_blocks(conv);
  const int64_t outputs = conv.group_outputs(), columns = panel_columns(conv.group_inputs());
  const int64_t image = conv.out_height * conv.out_width * g.stride;
  for (int64_t u = begin; u < end; ++u) {
    const ConvUnit unit = conv_unit(blocks, batch, conv.in_height, conv.in_width, u);
    ConvRectangle of{};
    of.top = conv_floor(unit.top + conv.pad_height - (conv.kernel_height - 1) * conv.dilation_height,
                        conv.stride_height);
    of.left = conv_floor(unit.left + conv.pad_width - (conv.kernel_width - 1) * conv.dilation_width,
                         conv.stride_width);
    of.height = conv_floor(unit.top + unit.height - 1 + conv.pad_height, conv.stride_height) - of.top + 1;
    of.width = conv_floor(unit.left + unit.width - 1 + conv.pad_width, conv.stride_width) - of.left + 1;
    const bool inside = of.top >= 0 && of.left >= 0 && of.top + of.height <= conv.out_height &&
                        of.left + of.width <= conv.out_width;
    ReadAhead ahead;
    if (u + 1 < end) {
      const ConvUnit next = conv_unit(blocks, batch, conv.in_height, conv.in_width, u + 1);
      ahead = rows_ahead(g, conv.out_height, conv.out_width, next, of.top + of.height, of.height);
    }
    const float* panels = packed;
    for (int64_t group = 0; group < conv.groups; ++group) {
      const float* from = g.data + unit.image * image + group * outputs;
      ConvSource source{scratch, of, outputs, of.width * outputs, of.height * of.width * outputs};
      if (conv.taps() == 1 && inside) {
        source = {from + (of.top * conv.out_width + of.left) * g.stride, of, g.stride,
                  conv.out_width * g.stride, image};
      } else {
        for (int64_t i = 0; i < unit.images; ++i)
          copy_rectangle(from + i * image, conv.out_height, conv.out_width, g.stride, outputs, of,
                         scratch + i * source.image);
      }
      for (int64_t down = 0; down < conv.stride_height; ++down) {
        for (int64_t across = 0; across < conv.stride_width; ++across) {
          input_phase(conv, unit, source, down, across, panels, dx, group,
                      group == 0 && down == 0 && across == 0 ? ahead : ReadAhead{});
          const int64_t taps =
              conv_phase(conv.kernel_height, conv.stride_height, conv.dilation_height, down).count *
              conv_phase(conv.kernel_width, conv.stride_width, conv.dilation_width, across).count;
          panels += taps * outputs * columns;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ulp::kernels

#include "ulp/kernels/training/conv_depthwise_body.h"
#include "ulp/kernels/training/conv_weight_body.h"

namespace ulp::kernels {

extern const ConvProductOps ULP_CONV_PRODUCT_OPS;
const ConvProductOps ULP_CONV_PRODUCT_OPS =
#ifdef ULP_CONV_OF_WORDS
    {conv_forward, conv_input_gradient, nullptr, nullptr, nullptr, nullptr};
#else
    {conv_forward,      conv_input_gradient, conv_weight_gradient,
     depthwise_forward, depthwise_input,     depthwise_weight};
#endif

}  // namespace ulp::kernels
