// Convolutions with one filter a channel: vectors go along the channels. Part of conv_products_body.h;
// everything here has internal linkage.
namespace ulp::kernels {
namespace {

/// Taps of one dimension that meet the image: [begin, end).
struct TapRange {
  int64_t begin, end;
};
/// For the pixel of the input that the first tap meets.
inline TapRange taps_inside(int64_t first, int64_t size, int64_t kernel, int64_t dilation) {
  TapRange made{first < 0 ? conv_ceil(-first, dilation) : 0, kernel};
  if (made.begin > kernel) made.begin = kernel;
  const int64_t most = size - first <= 0 ? 0 : conv_ceil(size - first, dilation);
  if (most < made.end) made.end = most;
  if (made.end < made.begin) made.end = made.begin;
  return made;
}

/// Steps that the windows of a run of pixels share: taps (h, w), each so many floats from the one before.
struct TapSteps {
  int64_t a_row, a_column, w_row, w_column, rows, columns;
  int64_t a_pixel, y_pixel;  ///< from a pixel of the run to the next
};

/// kPixels pixels and kVectors vectors of channels, the last one of n if kPartial.
template <int kPixels, int kVectors, bool kPartial>
void sum_taps(const float* a, const float* w, const TapSteps& steps, const StepConvResult& y,
              const float* bias, float* to, int64_t n) {
  ConvVector sums[kPixels][kVectors];
#pragma GCC unroll 16
  for (int m = 0; m < kPixels; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const float* from = y.adds ? to + m * steps.y_pixel : bias;
      sums[m][v] =
          from == nullptr ? ConvLanes::set1(0.0F) : load_columns_of<kPartial>(from + v * kConvLanes, n);
    }
  }
  for (int64_t h = 0; h < steps.rows; ++h, a += steps.a_row, w += steps.w_row) {
    const float *left = a, *right = w;
    for (int64_t k = 0; k < steps.columns; ++k, left += steps.a_column, right += steps.w_column) {
      ConvVector weight[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) weight[v] = load_columns_of<kPartial>(right + v * kConvLanes, n);
#pragma GCC unroll 16
      for (int m = 0; m < kPixels; ++m) {
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v)
          sums[m][v] = ConvLanes::fma(load_columns_of<kPartial>(left + m * steps.a_pixel + v * kConvLanes, n),
                                      weight[v], sums[m][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < kPixels; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      ConvVector sum = sums[m][v];
      if (y.relu) sum = ConvLanes::max(ConvLanes::set1(0.0F), sum);
      float* at = to + m * steps.y_pixel + v * kConvLanes;
      if constexpr (kPartial) {
        ConvLanes::store_first(at, sum, n);
      } else {
        ConvLanes::store(at, sum);
      }
    }
  }
}

/// All channels of kPixels neighbours.
template <int kPixels>
void sum_channels(const float* a, const float* w, const TapSteps& steps, const StepConvResult& y, float* to,
                  int64_t channels) {
  int64_t c = 0;
  const auto bias = [&] { return y.bias == nullptr ? nullptr : y.bias + c; };
  for (; c + 2 * kConvLanes <= channels; c += 2 * kConvLanes)
    sum_taps<kPixels, 2, false>(a + c, w + c, steps, y, bias(), to + c, 0);
  for (; c + kConvLanes <= channels; c += kConvLanes)
    sum_taps<kPixels, 1, false>(a + c, w + c, steps, y, bias(), to + c, 0);
  if (c < channels) sum_taps<kPixels, 1, true>(a + c, w + c, steps, y, bias(), to + c, channels - c);
}

void depthwise_forward(const StepConv& conv, const StepImages& x, const float* weights, int64_t weight_stride,
                       const StepConvResult& y, int64_t begin, int64_t end) {
  TapSteps steps{conv.dilation_height * conv.in_width * x.stride,
                 conv.dilation_width * x.stride,
                 conv.kernel_width * weight_stride,
                 weight_stride,
                 0,
                 0,
                 conv.stride_width * x.stride,
                 y.stride};
  const int64_t last_tap = (conv.kernel_width - 1) * conv.dilation_width;
  for (int64_t row = begin * conv.out_height; row < end * conv.out_height; ++row) {
    const int64_t image = row / conv.out_height;
    const int64_t top = row % conv.out_height * conv.stride_height - conv.pad_height;
    const TapRange down = taps_inside(top, conv.in_height, conv.kernel_height, conv.dilation_height);
    steps.rows = down.end - down.begin;
    const float* line = x.data + (image * conv.in_height + top + down.begin * conv.dilation_height) *
                                     conv.in_width * x.stride;
    const float* filter = weights + down.begin * conv.kernel_width * weight_stride;
    float* to = y.data + row * conv.out_width * y.stride;
    for (int64_t ox = 0; ox < conv.out_width;) {
      const int64_t left = ox * conv.stride_width - conv.pad_width;
      const TapRange across = taps_inside(left, conv.in_width, conv.kernel_width, conv.dilation_width);
      steps.columns = across.end - across.begin;
      const float* a = line + (left + across.begin * conv.dilation_width) * x.stride;
      const float* w = filter + across.begin * weight_stride;
      // Four pixels whose windows are whole.
      const bool four =
          left >= 0 && ox + 4 <= conv.out_width && left + 3 * conv.stride_width + last_tap < conv.in_width;
      four ? sum_channels<4>(a, w, steps, y, to + ox * y.stride, conv.in_channels)
           : sum_channels<1>(a, w, steps, y, to + ox * y.stride, conv.in_channels);
      ox += four ? 4 : 1;
    }
  }
}

/// Taps of one dimension that reach a pixel of the input from pixels of the result: `count`, the first one
/// being tap `tap` at pixel `from`; the next ones are `step` taps before and `move` pixels on.
struct ReachingTaps {
  int64_t tap, from, step, move, count;
};
inline ReachingTaps reaching_taps(int64_t pixel, int64_t pad, int64_t kernel, int64_t stride,
                                  int64_t dilation, int64_t outputs) {
  const ConvPhase phase = conv_phase(kernel, stride, dilation, (pixel + pad) % stride);
  ReachingTaps made{phase.last, 0, phase.step, phase.move, phase.count};
  if (made.count == 0) return made;
  made.from = conv_floor(pixel + pad - phase.last * dilation, stride);
  while (made.count > 0 && made.from < 0) {
    made.tap -= made.step;
    made.from += made.move;
    --made.count;
  }
  while (made.count > 0 && made.from + (made.count - 1) * made.move >= outputs) --made.count;
  return made;
}

void depthwise_input(const StepConv& conv, const StepImages& g, const float* weights, int64_t weight_stride,
                     const StepConvResult& dx, int64_t begin, int64_t end) {
  const bool even = conv.stride_width == 1;
  for (int64_t row = begin * conv.in_height; row < end * conv.in_height; ++row) {
    const ReachingTaps down = reaching_taps(row % conv.in_height, conv.pad_height, conv.kernel_height,
                                            conv.stride_height, conv.dilation_height, conv.out_height);
    const float* line =
        g.data + (row / conv.in_height * conv.out_height + down.from) * conv.out_width * g.stride;
    const float* filter = weights + down.tap * conv.kernel_width * weight_stride;
    float* to = dx.data + row * conv.in_width * dx.stride;
    for (int64_t ix = 0; ix < conv.in_width;) {
      const ReachingTaps across = reaching_taps(ix, conv.pad_width, conv.kernel_width, conv.stride_width,
                                                conv.dilation_width, conv.out_width);
      const bool none = down.count == 0 || across.count == 0;
      const TapSteps steps{down.move * conv.out_width * g.stride,
                           across.move * g.stride,
                           -down.step * conv.kernel_width * weight_stride,
                           -across.step * weight_stride,
                           none ? 0 : down.count,
                           across.count,
                           g.stride,
                           dx.stride};
      const float* a = none ? g.data : line + across.from * g.stride;
      const float* w = none ? weights : filter + across.tap * weight_stride;
      // Four pixels that all taps reach.
      const bool four = even && !none && across.count == conv.kernel_width && ix + 4 <= conv.in_width &&
                        across.from + 3 + (across.count - 1) * across.move < conv.out_width;
      four ? sum_channels<4>(a, w, steps, dx, to + ix * dx.stride, conv.in_channels)
           : sum_channels<1>(a, w, steps, dx, to + ix * dx.stride, conv.in_channels);
      ix += four ? 4 : 1;
    }
  }
}

/// Pixels of the result, in one dimension, whose tap meets the image: [begin, end).
inline TapRange pixels_of_tap(int64_t offset, int64_t stride, int64_t size, int64_t outputs) {
  TapRange made{offset < 0 ? conv_ceil(-offset, stride) : 0, outputs};
  const int64_t most = size - offset <= 0 ? 0 : conv_ceil(size - offset, stride);
  if (most < made.end) made.end = most;
  if (made.end < made.begin) made.end = made.begin;
  return made;
}

/// Sums of the taps of one row of a filter over one image, kTaps at a time, n channels if kPartial: for each
/// row of the image a chain, which is added to the sum of those before, from 0 in the first image.
template <int kTaps, bool kPartial>
void add_filter_row(const StepConv& conv, int64_t i, const StepImages& x, const StepImages& g, int64_t h,
                    int64_t w, int64_t channel, int64_t n, float* to, int64_t weight_stride) {
  const int64_t top = h * conv.dilation_height - conv.pad_height;
  const TapRange down = pixels_of_tap(top, conv.stride_height, conv.in_height, conv.out_height);
  TapRange across[kTaps];
  int64_t left[kTaps], inside_begin = 0, inside_end = conv.out_width;
  ConvVector totals[kTaps];
  for (int t = 0; t < kTaps; ++t) {
    left[t] = (w + t) * conv.dilation_width - conv.pad_width;
    across[t] = pixels_of_tap(left[t], conv.stride_width, conv.in_width, conv.out_width);
    if (across[t].begin > inside_begin) inside_begin = across[t].begin;
    if (across[t].end < inside_end) inside_end = across[t].end;
    totals[t] = i == 0 ? ConvLanes::set1(0.0F) : load_columns_of<kPartial>(to + t * weight_stride, n);
  }
  if (inside_end < inside_begin) inside_end = inside_begin;
  const int64_t a_pixel = conv.stride_width * x.stride;
  const ConvVector one = ConvLanes::set1(1.0F);
  for (int64_t oy = down.begin; oy < down.end; ++oy) {
    const float* a =
        x.data + (i * conv.in_height + oy * conv.stride_height + top) * conv.in_width * x.stride + channel;
    const float* b = g.data + (i * conv.out_height + oy) * conv.out_width * g.stride + channel;
    ConvVector sums[kTaps];
    const auto add_pixels = [&](int t, int64_t begin, int64_t end) {
      for (int64_t ox = begin; ox < end; ++ox)
        sums[t] = ConvLanes::fma(load_columns_of<kPartial>(a + left[t] * x.stride + ox * a_pixel, n),
                                 load_columns_of<kPartial>(b + ox * g.stride, n), sums[t]);
    };
#pragma GCC unroll 16
    for (int t = 0; t < kTaps; ++t) {
      sums[t] = ConvLanes::set1(0.0F);
      add_pixels(t, across[t].begin, across[t].end < inside_begin ? across[t].end : inside_begin);
    }
    for (int64_t ox = inside_begin; ox < inside_end; ++ox) {
      const ConvVector right = load_columns_of<kPartial>(b + ox * g.stride, n);
#pragma GCC unroll 16
      for (int t = 0; t < kTaps; ++t)
        sums[t] = ConvLanes::fma(load_columns_of<kPartial>(a + left[t] * x.stride + ox * a_pixel, n), right,
                                 sums[t]);
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTaps; ++t) {
      add_pixels(t, across[t].begin > inside_end ? across[t].begin : inside_end, across[t].end);
      totals[t] = ConvLanes::fma(one, totals[t], sums[t]);
    }
  }
  for (int t = 0; t < kTaps; ++t) {
    if constexpr (kPartial) {
      ConvLanes::store_first(to + t * weight_stride, totals[t], n);
    } else {
      ConvLanes::store(to + t * weight_stride, totals[t]);
    }
  }
}

/// A filter of kPartial or whole vectors of channels, in rows of three taps and single ones.
template <bool kPartial>
void add_filter(const StepConv& conv, int64_t i, const StepImages& x, const StepImages& g, int64_t channel,
                int64_t n, float* weights, int64_t weight_stride) {
  for (int64_t h = 0; h < conv.kernel_height; ++h) {
    float* row = weights + h * conv.kernel_width * weight_stride + channel;
    int64_t w = 0;
    for (; w + 3 <= conv.kernel_width; w += 3)
      add_filter_row<3, kPartial>(conv, i, x, g, h, w, channel, n, row + w * weight_stride, weight_stride);
    for (; w < conv.kernel_width; ++w)
      add_filter_row<1, kPartial>(conv, i, x, g, h, w, channel, n, row + w * weight_stride, weight_stride);
  }
}

void depthwise_weight(const StepConv& conv, int64_t batch, const StepImages& x, const StepImages& g,
                      float* weights, int64_t weight_stride, int64_t begin, int64_t end) {
  constexpr int64_t kUnit = 16;
  for (int64_t i = 0; i < batch; ++i) {  // an image stays in the nearer caches for all taps
    for (int64_t c = begin * kUnit; c < end * kUnit && c < conv.in_channels; c += kConvLanes) {
      const int64_t left = conv.in_channels - c;
      left < kConvLanes ? add_filter<true>(conv, i, x, g, c, left, weights, weight_stride)
                        : add_filter<false>(conv, i, x, g, c, 0, weights, weight_stride);
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
