// The table of operations on rows of floats that each instruction set fills in. Plain data, see float_bits.h
// for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/element.h"

namespace ulp::kernels {

/// Bounds of a row, zero included; `finite` is false when the row holds a NaN or an infinity.
struct RowRange {
  float min = 0, max = 0;
  bool finite = true;
};

struct RowOps {
  /// y = curve(x), curves.h.
  void (*curve)(Activation curve, const float* x, float* y, int64_t n);
  /// y = (x - mean) / sqrt(variance + epsilon) [* weight] [+ bias]; weight and bias may be null.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon, float* y,
                     int64_t n);
  RowRange (*range)(const float* x, int64_t n);
  /// For n columns of rows that lie `stride` apart: sums[c] = the sum of x[c] over the rows, in double.
  void (*column_sums)(const float* x, int64_t rows, int64_t stride, int64_t n, double* sums);
  /// The same of (x[c] - mean[c])^2.
  void (*column_squares)(const float* x, int64_t rows, int64_t stride, int64_t n, const float* mean,
                         double* sums);
  /// y[c] = (x[c] - mean[c]) * factor[c] + shift[c] in every row; y lies as x does and may be x.
  void (*column_norm)(const float* x, int64_t rows, int64_t stride, int64_t n, const float* mean,
                      const float* factor, const float* shift, float* y);
  /// One time step of `n` units of a cell, recurrent_cell.h.
  void (*lstm_cell)(const float* input_gates, const float* hidden_gates, float* c, float* h, int64_t n);
  void (*gru_cell)(const float* input_gates, const float* hidden_gates, float* h, int64_t n);
};

extern const RowOps kRowOpsPortable, kRowOpsAvx2, kRowOpsAvx512;

}  // namespace ulp::kernels
