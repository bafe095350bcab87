// The table of loops over rows of attention scores that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/formats/random_bits.h"

namespace ulp::kernels {

/// Scores of some queries, one row each, computed where they are. Row r sees its first visible + r * step keys, at most
/// `keys`; the others count as -infinity.
struct ScoreRows {
  float* data = nullptr;
  int64_t rows = 0, keys = 0, stride = 0;
  int64_t visible = 0;  ///< at least 1
  int64_t step = 0;     ///< 1 where each query sees one key more than the one before
  /// Numbers that are added to the scores of row r: mask[r * mask_stride + j]; null: none. With `truth` a key counts where it is
  /// not 0. A row that sees no key has the weights 0.
  const float* mask = nullptr;
  int64_t mask_stride = 0;
  bool truth = false;
};

/// Everything is computed in fp32 without contraction, sums in 16 partial sums: the same bits on every instruction set.
struct AttentionRowOps {
  /// x = e^(scale x - m) with m = the largest of scale x in the row; sums[r] = the sum of the row, and
  /// log_sums[r] = m + log(sums[r]).
  void (*exponentials)(const ScoreRows& x, float scale, float* sums, float* log_sums);
  /// x = e^(scale x - log_sums[r]).
  void (*probabilities)(const ScoreRows& x, float scale, const float* log_sums);
  /// x = x (g - dots[r]) scale: the gradient of the scores; g lies as x does.
  void (*score_gradient)(const ScoreRows& x, const float* g, const float* dots, float scale);
  /// x[i] = scale x[i] where the random number first_group * 64 + r * groups_per_row * 64 + i is at least
  /// `threshold`, else 0. With `keep`, which lies as x does, 0 there and scale x elsewhere go to it, and x stays.
  void (*dropout)(const ScoreRows& x, formats::RandomKey key, uint64_t first_group, int64_t groups_per_row,
                  uint32_t threshold, float scale, float* keep);
  /// dots[r] = the sum of a[r, j] b[r, j] for j < width.
  void (*row_dots)(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows,
                   int64_t width, float* dots);
  /// y[r, j] /= sums[r] for j < width.
  void (*divide_rows)(float* y, int64_t stride, int64_t rows, int64_t width, const float* sums);
};

extern const AttentionRowOps kAttentionRowOpsPortable, kAttentionRowOpsAvx2, kAttentionRowOpsAvx512;

}  // namespace ulp::kernels
