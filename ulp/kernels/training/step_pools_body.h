// Pooling of images. Part of step_images_body.h; everything here has internal linkage.
namespace ulp::kernels {
namespace {

/// Pixels of one dimension that a window reads: first, first + step, ... below end; `whole` numbers of it
/// count with the padding.
struct PoolWindow {
  int64_t tap, first, step, end, whole;
};
inline PoolWindow pool_window(int64_t i, int64_t size, int64_t outputs, int64_t kernel, int64_t stride,
                              int64_t pad, int64_t dilation, bool adaptive) {
  if (adaptive) {
    const int64_t first = i * size / outputs, end = ((i + 1) * size + outputs - 1) / outputs;
    return {0, first, 1, end, end - first};
  }
  PoolWindow made{0, i * stride - pad, dilation, 0, 0};
  made.end = made.first + (kernel - 1) * dilation + 1;
  const int64_t most = made.end < size + pad ? made.end : size + pad;
  made.whole = most - made.first;  // as count_include_pad counts
  while (made.first < 0) {
    made.first += dilation;
    ++made.tap;
  }
  if (made.end > size) made.end = size;
  return made;
}
inline PoolWindow window_down(const StepPool& p, int64_t i) {
  return pool_window(i, p.in_height, p.out_height, p.kernel_height, p.stride_height, p.pad_height,
                     p.dilation_height, p.adaptive);
}
inline PoolWindow window_across(const StepPool& p, int64_t i) {
  return pool_window(i, p.in_width, p.out_width, p.kernel_width, p.stride_width, p.pad_width,
                     p.dilation_width, p.adaptive);
}

/// Windows of one dimension that may read a pixel: [begin, end).
struct PoolRange {
  int64_t begin, end;
};
inline PoolRange pool_readers(int64_t pixel, int64_t size, int64_t outputs, int64_t kernel, int64_t stride,
                              int64_t pad, int64_t dilation, bool adaptive) {
  if (adaptive) return {pixel * outputs / size, ((pixel + 1) * outputs + size - 1) / size};
  const int64_t span = (kernel - 1) * dilation, first = pixel + pad - span;
  PoolRange made{first <= 0 ? 0 : (first + stride - 1) / stride, (pixel + pad) / stride + 1};
  if (made.end > outputs) made.end = outputs;
  return made;
}
inline PoolRange readers_down(const StepPool& p, int64_t pixel) {
  return pool_readers(pixel, p.in_height, p.out_height, p.kernel_height, p.stride_height, p.pad_height,
                      p.dilation_height, p.adaptive);
}
inline PoolRange readers_across(const StepPool& p, int64_t pixel) {
  return pool_readers(pixel, p.in_width, p.out_width, p.kernel_width, p.stride_width, p.pad_width,
                      p.dilation_width, p.adaptive);
}

/// The tap of a window that reads a pixel, or -1.
inline int64_t tap_of(int64_t pixel, int64_t output, int64_t stride, int64_t pad, int64_t dilation) {
  const int64_t from = pixel + pad - output * stride;
  return from % dilation == 0 ? from / dilation : -1;
}

inline void fill_pixel(float value, float* to, int64_t channels) {
  for (int64_t c = 0; c < channels; ++c) to[c] = value;
}

/// Larger numbers and NaNs of one tap.
inline void take_larger(const float* x, float tap, float* y, float* places, int64_t channels) {
  for (int64_t c = 0; c < channels; ++c) {
    const float value = x[c];
    const bool takes = value > y[c] || value != value;
    y[c] = takes ? value : y[c];
    places[c] = takes ? tap : places[c];
  }
}

void max_pool(const StepPool& p, const StepImages& x, float* y, float* places, int64_t stride, int64_t begin,
              int64_t end) {
  const float lowest = -__builtin_inff();
  for (int64_t n = begin; n < end; ++n) {
    const float* image = x.data + n * p.in_height * p.in_width * x.stride;
    for (int64_t oy = 0; oy < p.out_height; ++oy) {
      const PoolWindow down = window_down(p, oy);
      for (int64_t ox = 0; ox < p.out_width; ++ox) {
        const PoolWindow across = window_across(p, ox);
        const int64_t to = ((n * p.out_height + oy) * p.out_width + ox) * stride;
        fill_pixel(lowest, y + to, p.channels);
        fill_pixel(static_cast<float>(down.tap * p.kernel_width + across.tap), places + to, p.channels);
        int64_t row_tap = down.tap;
        for (int64_t iy = down.first; iy < down.end; iy += down.step, ++row_tap) {
          int64_t tap = row_tap * p.kernel_width + across.tap;
          for (int64_t ix = across.first; ix < across.end; ix += across.step, ++tap)
            take_larger(image + (iy * p.in_width + ix) * x.stride, static_cast<float>(tap), y + to,
                        places + to, p.channels);
        }
      }
    }
  }
}

void max_pool_gradient(const StepPool& p, const StepImages& g, const float* places, float* dx, int64_t stride,
                       int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t iy = 0; iy < p.in_height; ++iy) {
      const PoolRange down = readers_down(p, iy);
      for (int64_t ix = 0; ix < p.in_width; ++ix) {
        const PoolRange across = readers_across(p, ix);
        float* to = dx + ((n * p.in_height + iy) * p.in_width + ix) * stride;
        fill_pixel(0.0F, to, p.channels);
        for (int64_t oy = down.begin; oy < down.end; ++oy) {
          const int64_t row_tap = tap_of(iy, oy, p.stride_height, p.pad_height, p.dilation_height);
          if (row_tap < 0) continue;
          for (int64_t ox = across.begin; ox < across.end; ++ox) {
            const int64_t column_tap = tap_of(ix, ox, p.stride_width, p.pad_width, p.dilation_width);
            if (column_tap < 0) continue;
            const auto tap = static_cast<float>(row_tap * p.kernel_width + column_tap);
            const int64_t at = ((n * p.out_height + oy) * p.out_width + ox) * g.stride;
            const float *gradient = g.data + at, *place = places + at;
            for (int64_t c = 0; c < p.channels; ++c) to[c] += place[c] == tap ? gradient[c] : 0.0F;
          }
        }
      }
    }
  }
}

/// The divisor of an average.
inline float pool_divisor(const StepPool& p, const PoolWindow& down, const PoolWindow& across) {
  if (p.divisor != 0) return static_cast<float>(p.divisor);
  if (p.count_include_pad) return static_cast<float>(down.whole * across.whole);
  return static_cast<float>((down.end - down.first) * (across.end - across.first));
}

void average_pool(const StepPool& p, const StepImages& x, float* y, int64_t stride, int64_t begin,
                  int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    const float* image = x.data + n * p.in_height * p.in_width * x.stride;
    for (int64_t oy = 0; oy < p.out_height; ++oy) {
      const PoolWindow down = window_down(p, oy);
      for (int64_t ox = 0; ox < p.out_width; ++ox) {
        const PoolWindow across = window_across(p, ox);
        float* to = y + ((n * p.out_height + oy) * p.out_width + ox) * stride;
        fill_pixel(0.0F, to, p.channels);
        if (down.end <= down.first || across.end <= across.first) continue;  // padding alone
        for (int64_t iy = down.first; iy < down.end; ++iy) {
          for (int64_t ix = across.first; ix < across.end; ++ix) {
            const float* from = image + (iy * p.in_width + ix) * x.stride;
            for (int64_t c = 0; c < p.channels; ++c) to[c] += from[c];
          }
        }
        const float divisor = pool_divisor(p, down, across);
        for (int64_t c = 0; c < p.channels; ++c) to[c] /= divisor;
      }
    }
  }
}

void average_pool_gradient(const StepPool& p, const StepImages& g, float* dx, int64_t stride, int64_t begin,
                           int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t iy = 0; iy < p.in_height; ++iy) {
      const PoolRange down = readers_down(p, iy);
      for (int64_t ix = 0; ix < p.in_width; ++ix) {
        const PoolRange across = readers_across(p, ix);
        float* to = dx + ((n * p.in_height + iy) * p.in_width + ix) * stride;
        fill_pixel(0.0F, to, p.channels);
        for (int64_t oy = down.begin; oy < down.end; ++oy) {
          const PoolWindow rows = window_down(p, oy);
          for (int64_t ox = across.begin; ox < across.end; ++ox) {
            const float divisor = pool_divisor(p, rows, window_across(p, ox));
            const float* from = g.data + ((n * p.out_height + oy) * p.out_width + ox) * g.stride;
            for (int64_t c = 0; c < p.channels; ++c) to[c] += from[c] / divisor;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
