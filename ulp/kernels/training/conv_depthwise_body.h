// Convolutions with one filter a channel: vectors go along the channels. Part of conv_products_body.h; everything here has internal
// linkage.
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

/// n channels of one pixel: the sum over taps (h, w), each `a_row` and `a_column` floats from the one before.
template <int kVectors>
void sum_taps(const float* a, int64_t a_row, int64_t a_column, const float* w, int64_t w_row,
              int64_t w_column, int64_t rows, int64_t columns, const StepConvResult& y, float* to,
              int64_t channel, int64_t n) {
  ConvVector sums[kVectors];
  constexpr int kLast = kVectors - 1;
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const int64_t count = v == kLast ? n : kConvLanes;
    sums[v] = y.adds              ? load_some(to + channel + v * kConvLanes, count)
              : y.bias != nullptr ? load_some(y.bias + channel + v * kConvLanes, count)
                                  : ProductLanes::set1(0.0F);
  }
  for (int64_t h = 0; h < rows; ++h) {
    const float* left = a + h * a_row + channel;
    const float* right = w + h * w_row + channel;
    for (int64_t k = 0; k < columns; ++k, left += a_column, right += w_column) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const int64_t count = v == kLast ? n : kConvLanes;
        sums[v] = ProductLanes::fma(load_some(left + v * kConvLanes, count),
                                    load_some(right + v * kConvLanes, count), sums[v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    ConvVector sum = sums[v];
    if (y.relu) sum = ProductLanes::max(ProductLanes::set1(0.0F), sum);
    float* at = to + channel + v * kConvLanes;
    if (v < kLast || n >= kConvLanes) {
      ProductLanes::store(at, sum);
    } else {
      ProductLanes::store_first(at, sum, n);
    }
  }
}

void sum_channels(const float* a, int64_t a_row, int64_t a_column, const float* w, int64_t w_row,
                  int64_t w_column, int64_t rows, int64_t columns, const StepConvResult& y, float* to,
                  int64_t channels) {
  int64_t c = 0;
  for (; c + 4 * kConvLanes <= channels; c += 4 * kConvLanes)
    sum_taps<4>(a, a_row, a_column, w, w_row, w_column, rows, columns, y, to, c, kConvLanes);
  for (; c < channels; c += kConvLanes) {
    const int64_t left = channels - c;
    sum_taps<1>(a, a_row, a_column, w, w_row, w_column, rows, columns, y, to, c,
                left < kConvLanes ? left : kConvLanes);
  }
}

void depthwise_forward(const StepConv& conv, const StepImages& x, const float* weights, int64_t weight_stride,
                       const StepConvResult& y, int64_t begin, int64_t end) {
  const int64_t a_row = conv.dilation_height * conv.in_width * x.stride;
  const int64_t a_column = conv.dilation_width * x.stride;
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t oy = 0; oy < conv.out_height; ++oy) {
      const int64_t top = oy * conv.stride_height - conv.pad_height;
      const TapRange down = taps_inside(top, conv.in_height, conv.kernel_height, conv.dilation_height);
      for (int64_t ox = 0; ox < conv.out_width; ++ox) {
        const int64_t left = ox * conv.stride_width - conv.pad_width;
        const TapRange across = taps_inside(left, conv.in_width, conv.kernel_width, conv.dilation_width);
        const int64_t row = i * conv.in_height + top + down.begin * conv.dilation_height;
        const float* a =
            x.data + (row * conv.in_width + left + across.begin * conv.dilation_width) * x.stride;
        sum_channels(
            a, a_row, a_column, weights + (down.begin * conv.kernel_width + across.begin) * weight_stride,
            conv.kernel_width * weight_stride, weight_stride, down.end - down.begin,
            across.end - across.begin, y,
            y.data + ((i * conv.out_height + oy) * conv.out_width + ox) * y.stride, conv.in_channels);
      }
    }
  }
}

/// Taps of one dimension that reach a pixel of the input from pixels of the result: `count`, the first one being tap `tap` at
/// pixel `from`; the next ones are `step` taps before and `move` pixels on.
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
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t iy = 0; iy < conv.in_height; ++iy) {
      const ReachingTaps down = reaching_taps(iy, conv.pad_height, conv.kernel_height, conv.stride_height,
                                              conv.dilation_height, conv.out_height);
      for (int64_t ix = 0; ix < conv.in_width; ++ix) {
        const ReachingTaps across = reaching_taps(ix, conv.pad_width, conv.kernel_width, conv.stride_width,
                                                  conv.dilation_width, conv.out_width);
        const bool none = down.count == 0 || across.count == 0;
        const float* a =
            none ? g.data
                 : g.data + ((i * conv.out_height + down.from) * conv.out_width + across.from) * g.stride;
        const float* w =
            none ? weights : weights + (down.tap * conv.kernel_width + across.tap) * weight_stride;
        sum_channels(a, down.move * conv.out_width * g.stride, across.move * g.stride, w,
                     -down.step * conv.kernel_width * weight_stride, -across.step * weight_stride,
                     none ? 0 : down.count, across.count, dx,
                     dx.data + ((i * conv.in_height + iy) * conv.in_width + ix) * dx.stride,
                     conv.in_channels);
      }
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

/// n channels of one tap, rows of the images one by one: a chain over a row, added to the sum of those before.
void add_tap(const StepConv& conv, int64_t batch, const StepImages& x, const StepImages& g, int64_t h,
             int64_t w, int64_t channel, int64_t n, float* to) {
  const int64_t top = h * conv.dilation_height - conv.pad_height;
  const int64_t left = w * conv.dilation_width - conv.pad_width;
  const TapRange down = pixels_of_tap(top, conv.stride_height, conv.in_height, conv.out_height);
  const TapRange across = pixels_of_tap(left, conv.stride_width, conv.in_width, conv.out_width);
  ConvVector total = ProductLanes::set1(0.0F);
  const ConvVector one = ProductLanes::set1(1.0F);
  for (int64_t i = 0; i < batch; ++i) {
    for (int64_t oy = down.begin; oy < down.end; ++oy) {
      const int64_t row = i * conv.in_height + oy * conv.stride_height + top;
      const float* a =
          x.data + (row * conv.in_width + across.begin * conv.stride_width + left) * x.stride + channel;
      const float* b =
          g.data + ((i * conv.out_height + oy) * conv.out_width + across.begin) * g.stride + channel;
      ConvVector sum = ProductLanes::set1(0.0F);
      for (int64_t ox = across.begin; ox < across.end; ++ox) {
        sum = ProductLanes::fma(load_some(a, n), load_some(b, n), sum);
        a += conv.stride_width * x.stride;
        b += g.stride;
      }
      total = ProductLanes::fma(one, total, sum);
    }
  }
  if (n >= kConvLanes) {
    ProductLanes::store(to, total);
  } else {
    ProductLanes::store_first(to, total, n);
  }
}

void depthwise_weight(const StepConv& conv, int64_t batch, const StepImages& x, const StepImages& g,
                      float* weights, int64_t weight_stride, int64_t begin, int64_t end) {
  constexpr int64_t kUnit = 16;
  for (int64_t c = begin * kUnit; c < end * kUnit && c < conv.in_channels; c += kConvLanes) {
    const int64_t left = conv.in_channels - c;
    for (int64_t h = 0; h < conv.kernel_height; ++h) {
      for (int64_t w = 0; w < conv.kernel_width; ++w)
        add_tap(conv, batch, x, g, h, w, c, left < kConvLanes ? left : kConvLanes,
                weights + (h * conv.kernel_width + w) * weight_stride + c);
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
