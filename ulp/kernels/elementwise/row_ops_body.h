// The operations on rows, written so that the compiler vectorizes them. Included once by a file per
// instruction set, which names its table with ULP_ROW_OPS; everything here has internal linkage.
#include "ulp/kernels/elementwise/activations.h"
#include "ulp/kernels/elementwise/row_ops.h"

namespace ulp::kernels {
namespace {

// Of partial results; fixed, so that the order of summation is the same on every machine.
constexpr int64_t kLanes = 16;

inline float sum_of(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (int64_t l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

/// sum of f(x[i]).
template <typename F>
inline float sum_over(const float* x, int64_t n, F f) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += f(x[i + l]);
  }
  for (int64_t l = 0; i + l < n; ++l) lanes[l] += f(x[i + l]);
  return sum_of(lanes);
}

void curve(Activation kind, const float* x, float* y, int64_t n) {
  apply_curve(kind, x, y, n);
}

void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* y, int64_t n) {
  const float count = static_cast<float>(n);
  const float mean = sum_over(x, n, [](float v) { return v; }) / count;
  const float variance = sum_over(x, n, [mean](float v) { return (v - mean) * (v - mean); }) / count;
  const float factor = 1.0F / __builtin_sqrtf(variance + epsilon);
  if (weight != nullptr && bias != nullptr) {
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * factor * weight[i] + bias[i];
    return;
  }
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * factor;
  if (weight != nullptr) {
    for (int64_t i = 0; i < n; ++i) y[i] *= weight[i];
  }
  if (bias != nullptr) {
    for (int64_t i = 0; i < n; ++i) y[i] += bias[i];
  }
}

RowRange range(const float* x, int64_t n) {
  float low[kLanes] = {}, high[kLanes] = {};
  uint32_t largest[kLanes] = {};  // magnitudes as integers: infinities and NaN are the largest of all
  const auto take = [&](int64_t l, float v) {
    low[l] = v < low[l] ? v : low[l];
    high[l] = v > high[l] ? v : high[l];
    const uint32_t bits = float_to_bits(v) & 0x7fffffffU;
    largest[l] = bits > largest[l] ? bits : largest[l];
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) take(l, x[i + l]);
  }
  for (int64_t l = 0; i + l < n; ++l) take(l, x[i + l]);
  RowRange found;
  for (int64_t l = 0; l < kLanes; ++l) {
    found.min = low[l] < found.min ? low[l] : found.min;
    found.max = high[l] > found.max ? high[l] : found.max;
    found.finite = found.finite && largest[l] < 0x7f800000U;
  }
  return found;
}

/// sums[c] = the sum of f(x[c], c) over the rows, in double: the rounding of long sums would show. Rows are
/// taken in blocks, whose columns stay in the nearest cache from one set of lanes to the next.
template <typename F>
inline void sum_columns(const float* x, int64_t rows, int64_t stride, int64_t n, double* sums, F f) {
  constexpr int64_t kBlock = 64;
  for (int64_t c = 0; c < n; ++c) sums[c] = 0;
  for (int64_t begin = 0; begin < rows; begin += kBlock) {
    const int64_t end = begin + kBlock < rows ? begin + kBlock : rows;
    int64_t c = 0;
    for (; c + kLanes <= n; c += kLanes) {
      double lanes[kLanes];
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] = sums[c + l];
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t l = 0; l < kLanes; ++l) lanes[l] += f(x[row * stride + c + l], c + l);
      }
      for (int64_t l = 0; l < kLanes; ++l) sums[c + l] = lanes[l];
    }
    for (; c < n; ++c) {
      for (int64_t row = begin; row < end; ++row) sums[c] += f(x[row * stride + c], c);
    }
  }
}

void column_sums(const float* x, int64_t rows, int64_t stride, int64_t n, double* sums) {
  sum_columns(x, rows, stride, n, sums, [](float v, int64_t) { return v; });
}

void column_squares(const float* x, int64_t rows, int64_t stride, int64_t n, const float* mean,
                    double* sums) {
  sum_columns(x, rows, stride, n, sums, [mean](float v, int64_t c) { return (v - mean[c]) * (v - mean[c]); });
}

void column_norm(const float* x, int64_t rows, int64_t stride, int64_t n, const float* mean,
                 const float* factor, const float* shift, float* y) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * stride;
    float* to = y + row * stride;
    int64_t c = 0;
    for (; c + kLanes <= n; c += kLanes) {
      float lanes[kLanes];  // all are read before one is written: y may be x
      for (int64_t l = 0; l < kLanes; ++l)
        lanes[l] = (from[c + l] - mean[c + l]) * factor[c + l] + shift[c + l];
      for (int64_t l = 0; l < kLanes; ++l) to[c + l] = lanes[l];
    }
    for (; c < n; ++c) to[c] = (from[c] - mean[c]) * factor[c] + shift[c];
  }
}

// Without __restrict these loops would need more checks for overlap than the compiler makes.

void lstm_cell(const float* __restrict x, const float* __restrict r, float* __restrict c, float* __restrict h,
               int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float in = sigmoid_activation(x[i] + r[i]), forget = sigmoid_activation(x[n + i] + r[n + i]);
    const float cell = tanh_activation(x[2 * n + i] + r[2 * n + i]);
    const float out = sigmoid_activation(x[3 * n + i] + r[3 * n + i]);
    const float next = forget * c[i] + in * cell;
    c[i] = next;
    h[i] = out * tanh_activation(next);
  }
}

void gru_cell(const float* __restrict x, const float* __restrict r, float* __restrict h, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float reset = sigmoid_activation(x[i] + r[i]), update = sigmoid_activation(x[n + i] + r[n + i]);
    const float fresh = tanh_activation(x[2 * n + i] + reset * r[2 * n + i]);
    h[i] = (h[i] - fresh) * update + fresh;
  }
}

}  // namespace

extern const RowOps ULP_ROW_OPS;
const RowOps ULP_ROW_OPS = {curve,          layer_norm,  range,     column_sums,
                            column_squares, column_norm, lstm_cell, gru_cell};

}  // namespace ulp::kernels
