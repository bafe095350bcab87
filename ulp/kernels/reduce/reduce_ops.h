// The loops of reductions that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

namespace ulp::kernels {

/// What is added up: x, |x|, x * x, (x - center)^2, exp(x - center), whether x is not 0; or all multiplied.
enum class Term : uint8_t { plain, absolute, square, difference, exp, nonzero, product };

/// The columns that are held at a time.
constexpr int64_t kReduceColumns = 256;

struct ReduceOps {
  /// Of n numbers side by side, in double.
  double (*sum_row)(Term term, const float* x, int64_t n, double center);
  /// The largest or smallest, of absolute values if `absolute`; a NaN wins.
  float (*extreme_row)(bool largest, bool absolute, const float* x, int64_t n);
  /// sums[c] += the terms of column c over the rows, which lie `stride` apart.
  void (*sum_columns)(Term term, const float* x, int64_t rows, int64_t stride, int64_t n,
                      const double* center, double* sums);
  /// best[c] = the larger (smaller) of best[c] and the numbers of column c.
  void (*extreme_columns)(bool largest, bool absolute, const float* x, int64_t rows, int64_t stride,
                          int64_t n, float* best);
};

extern const ReduceOps kReduceOpsPortable, kReduceOpsAvx2, kReduceOpsAvx512;

}  // namespace ulp::kernels
