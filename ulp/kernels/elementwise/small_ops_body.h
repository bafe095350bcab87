// The small operations, written so that the compiler vectorizes them. Included once by a file per instruction
// set, which names its table with ULP_SMALL_OPS; everything here has internal linkage.
#include <cstdint>

#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/elementwise/activations.h"
#include "ulp/kernels/elementwise/small_ops.h"
#include "ulp/kernels/elementwise/softmax_row.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kChunk = 256;        // channels that a pooling window sums at a time, on the stack
constexpr int32_t kSignedShift = 128;  // from s8 codes to u8 codes

inline float load(const float* x, int64_t i) {
  return x[i];
}
inline float load(const uint16_t* x, int64_t i) {
  return bf16_to_float(x[i]);
}
inline void store(float* y, int64_t i, float v) {
  y[i] = v;
}
inline void store(uint16_t* y, int64_t i, float v) {
  y[i] = float_to_bf16(v);
}

/// Bounds first, so that a NaN passes.
inline float clamp_float(float v, float lo, float hi) {
  v = v < lo ? lo : v;
  return v > hi ? hi : v;
}
/// Value first, so that a NaN becomes lo and the conversion to int is defined.
inline uint8_t to_u8(float v, const ElementwiseArgs& q) {
  v = v > q.lo ? v : q.lo;
  v = v < q.hi ? v : q.hi;
  return static_cast<uint8_t>(static_cast<int32_t>(round_even(v)) + q.y_zero);
}

template <typename T>
void clamp_floats(const T* x, T* y, int64_t n, const ElementwiseArgs& args) {
  const float lo = args.lo, hi = args.hi;
  for (int64_t i = 0; i < n; ++i) store(y, i, clamp_float(load(x, i), lo, hi));
}
void clamp_bytes(const uint8_t* x, uint8_t* y, int64_t n, const ElementwiseArgs& args) {
  const uint8_t lo = static_cast<uint8_t>(args.lo), hi = static_cast<uint8_t>(args.hi);
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t v = x[i] < lo ? lo : x[i];
    y[i] = v > hi ? hi : v;
  }
}
void clamp(DataType type, const void* x, void* y, int64_t n, const ElementwiseArgs& args) {
  if (type == DataType::f32)
    return clamp_floats(static_cast<const float*>(x), static_cast<float*>(y), n, args);
  if (type == DataType::bf16)
    return clamp_floats(static_cast<const uint16_t*>(x), static_cast<uint16_t*>(y), n, args);
  clamp_bytes(static_cast<const uint8_t*>(x), static_cast<uint8_t*>(y), n, args);
}

template <typename T>
void add_floats(const T* a, const T* b, T* y, int64_t n, const ElementwiseArgs& args) {
  const float lo = args.lo, hi = args.hi;
  for (int64_t i = 0; i < n; ++i) store(y, i, clamp_float(load(a, i) + load(b, i), lo, hi));
}
void add_bytes(const uint8_t* a, const uint8_t* b, uint8_t* y, int64_t n, const ElementwiseArgs& args) {
  const ElementwiseArgs q = args;
  for (int64_t i = 0; i < n; ++i) {
    const float left = (static_cast<float>(a[i]) - q.a_zero) * q.a_multiplier;
    const float right = (static_cast<float>(b[i]) - q.b_zero) * q.b_multiplier;
    y[i] = to_u8(left + right, q);
  }
}
void add(DataType type, const void* a, const void* b, void* y, int64_t n, const ElementwiseArgs& args) {
  if (type == DataType::f32) {
    return add_floats(static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(y), n,
                      args);
  }
  if (type == DataType::bf16) {
    return add_floats(static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b),
                      static_cast<uint16_t*>(y), n, args);
  }
  add_bytes(static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), static_cast<uint8_t*>(y), n,
            args);
}

void requantize(const uint8_t* x, uint8_t* y, int64_t n, const ElementwiseArgs& args) {
  const ElementwiseArgs q = args;
  for (int64_t i = 0; i < n; ++i) y[i] = to_u8((static_cast<float>(x[i]) - q.a_zero) * q.a_multiplier, q);
}
void quantize(const float* x, uint8_t* y, int64_t n, const ElementwiseArgs& args) {
  const ElementwiseArgs q = args;
  for (int64_t i = 0; i < n; ++i) y[i] = to_u8(x[i] * q.a_multiplier, q);
}
void dequantize(const uint8_t* x, float* y, int64_t n, const ElementwiseArgs& args) {
  const float zero = args.a_zero, scale = args.a_multiplier;
  for (int64_t i = 0; i < n; ++i) y[i] = (static_cast<float>(x[i]) - zero) * scale;
}
void f32_to_bf16(const float* x, uint16_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = float_to_bf16(x[i]);
}
void bf16_to_f32(const uint16_t* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = bf16_to_float(x[i]);
}
void u8_to_i16(const uint8_t* x, int16_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
}

template <typename T>
void interleave_rows(const void* x, int64_t step, void* __restrict y, int64_t n) {
  const T* first = static_cast<const T*>(x);
  const T *second = first + step, *third = second + step;
  T* __restrict to = static_cast<T*>(y);
  for (int64_t i = 0; i < n; ++i) {
    to[3 * i] = first[i];
    to[3 * i + 1] = second[i];
    to[3 * i + 2] = third[i];
  }
}
void interleave(int64_t element_size, const void* x, int64_t step, void* y, int64_t n) {
  if (element_size == 1) return interleave_rows<uint8_t>(x, step, y, n);
  if (element_size == 2) return interleave_rows<uint16_t>(x, step, y, n);
  interleave_rows<uint32_t>(x, step, y, n);
}

constexpr int64_t kLanes = 16;  // of partial results; fixed, so that the order is the same on every machine

void softmax_row(DataType type, const void* x, void* y, int64_t n) {
  if (type == DataType::f32) return softmax_row(static_cast<const float*>(x), static_cast<float*>(y), n);
  softmax_row(static_cast<const uint16_t*>(x), static_cast<uint16_t*>(y), n);
}

/// The part of [start, start + kernel * dilation) that lies inside [0, in).
struct Range {
  int64_t begin, end, step;
};
inline Range inside(int64_t start, int64_t kernel, int64_t dilation, int64_t in) {
  Range r{start, start + (kernel - 1) * dilation + 1, dilation};
  if (r.begin < 0) r.begin += (-r.begin + dilation - 1) / dilation * dilation;
  if (r.end > in) r.end = in;
  return r;
}

/// An element as the type that a window sums in.
template <typename T, typename V>
inline V widen(const T* x, int64_t i) {
  if constexpr (sizeof(T) == 1) {
    return static_cast<V>(x[i]);
  } else {
    return load(x, i);
  }
}

template <typename T>
inline T larger(T best, T v) {
  if constexpr (sizeof(T) == 1) {
    return v > best ? v : best;
  } else if constexpr (sizeof(T) == 2) {
    const float wide = bf16_to_float(v);
    return static_cast<int>(wide > bf16_to_float(best)) | static_cast<int>(wide != wide) ? v : best;
  } else {
    return static_cast<int>(v > best) | static_cast<int>(v != v) ? v : best;  // a NaN wins, first or last
  }
}

/// The largest of a window for kCount channels, or `count` of them where kCount is 0.
template <typename T, int64_t kCount>
inline void max_window(const PoolRowArgs& a, const Range& rows, const Range& columns, const T* x, T* out,
                       int64_t count) {
  const int64_t n = kCount == 0 ? count : kCount;
  T best[kCount == 0 ? kLanes : kCount];
  const T* first = x + (rows.begin * a.in_w + columns.begin) * a.channels;
  for (int64_t c = 0; c < n; ++c) best[c] = first[c];
  for (int64_t h = rows.begin; h < rows.end; h += rows.step) {
    for (int64_t w = columns.begin; w < columns.end; w += columns.step) {
      const T* from = x + (h * a.in_w + w) * a.channels;
      if constexpr (sizeof(T) == 1) {
        for (int64_t c = 0; c < n; ++c) best[c] = larger(best[c], from[c]);
      } else {
#pragma GCC unroll 1  // unrolled, the choice for a NaN would keep it from being vectorized
        for (int64_t c = 0; c < n; ++c) best[c] = larger(best[c], from[c]);
      }
    }
  }
  for (int64_t c = 0; c < n; ++c) out[c] = best[c];
}

template <typename T>
void max_pool_typed(const PoolRowArgs& a) {
  const T* x = static_cast<const T*>(a.x);
  const Range rows = inside(a.top, a.kernel_h, a.dilation_h, a.in_h);
  for (int64_t ow = 0; ow < a.out_w; ++ow) {
    const Range columns = inside(a.left + ow * a.stride_w, a.kernel_w, a.dilation_w, a.in_w);
    T* out = static_cast<T*>(a.y) + ow * a.channels;
    int64_t c = 0;
    for (; c + 4 * kLanes <= a.channels; c += 4 * kLanes)
      max_window<T, 4 * kLanes>(a, rows, columns, x + c, out + c, 0);
    for (; c + kLanes <= a.channels; c += kLanes) max_window<T, kLanes>(a, rows, columns, x + c, out + c, 0);
    if (c < a.channels) max_window<T, 0>(a, rows, columns, x + c, out + c, a.channels - c);
  }
}
void max_pool_row(DataType type, const PoolRowArgs& args) {
  if (type == DataType::f32) return max_pool_typed<float>(args);
  if (type == DataType::bf16) return max_pool_typed<uint16_t>(args);
  max_pool_typed<uint8_t>(args);
}

inline int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/// The s8 code nearest to sum / count, the larger magnitude at a tie, as u8. `half` is count / 2 and
/// `inverse` 1 / count; the half that is added keeps what is truncated further from whole numbers than the
/// product is wrong.
inline uint8_t mean_code(int32_t sum, int32_t half, double inverse) {
  const int32_t up = (sum < 0 ? -sum : sum) + half;
  const auto mean = static_cast<int32_t>((static_cast<double>(up) + 0.5) * inverse);
  return static_cast<uint8_t>(kSignedShift + (sum < 0 ? -mean : mean));
}

template <typename T, typename Sum>
void avg_pool_typed(const PoolRowArgs& a) {
  const T* x = static_cast<const T*>(a.x);
  T* y = static_cast<T*>(a.y);
  const Range rows = inside(a.top, a.kernel_h, 1, a.in_h);
  const int64_t window_h = smaller(a.top + a.kernel_h, a.in_h + a.pad_h) - a.top;
  Sum sums[kChunk];
  for (int64_t ow = 0; ow < a.out_w; ++ow) {
    const int64_t left = a.left + ow * a.stride_w;
    const Range columns = inside(left, a.kernel_w, 1, a.in_w);
    const int64_t window_w = smaller(left + a.kernel_w, a.in_w + a.pad_w) - left;
    const int64_t valid = (rows.end - rows.begin) * (columns.end - columns.begin);
    const int64_t divisor = a.count_include_pad ? window_h * window_w : valid;
    const auto count = static_cast<float>(divisor);
    for (int64_t c0 = 0; c0 < a.channels; c0 += kChunk) {
      const int64_t n = smaller(kChunk, a.channels - c0);
      for (int64_t c = 0; c < n; ++c) sums[c] = 0;
      for (int64_t h = rows.begin; h < rows.end; ++h) {
        for (int64_t w = columns.begin; w < columns.end; ++w) {
          const T* from = x + (h * a.in_w + w) * a.channels + c0;
          for (int64_t c = 0; c < n; ++c) sums[c] += widen<T, Sum>(from, c);
        }
      }
      T* out = y + ow * a.channels + c0;
      if constexpr (sizeof(T) == 1) {
        const ElementwiseArgs q = a.u8;
        if (a.ties_away) {
          const auto all = static_cast<int32_t>(divisor);
          const int32_t rest = q.y_zero * (all - static_cast<int32_t>(valid)) - kSignedShift * all;
          const double inverse = 1 / static_cast<double>(all);
          for (int64_t c = 0; c < n; ++c) out[c] = mean_code(sums[c] + rest, all / 2, inverse);
          continue;
        }
        const float m = q.a_multiplier / count;
        const int32_t offset = static_cast<int32_t>(q.a_zero) * static_cast<int32_t>(valid);
        for (int64_t c = 0; c < n; ++c) out[c] = to_u8(static_cast<float>(sums[c] - offset) * m, q);
      } else {
        for (int64_t c = 0; c < n; ++c) store(out, c, sums[c] / count);
      }
    }
  }
}
void avg_pool_row(DataType type, const PoolRowArgs& args) {
  if (type == DataType::f32) return avg_pool_typed<float, float>(args);
  if (type == DataType::bf16) return avg_pool_typed<uint16_t, float>(args);
  avg_pool_typed<uint8_t, int32_t>(args);
}

}  // namespace

extern const SmallOps ULP_SMALL_OPS;
const SmallOps ULP_SMALL_OPS = {clamp,       add,       requantize, quantize,    dequantize,   f32_to_bf16,
                                bf16_to_f32, u8_to_i16, interleave, softmax_row, max_pool_row, avg_pool_row};

}  // namespace ulp::kernels
