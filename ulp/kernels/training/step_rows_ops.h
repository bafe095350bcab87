// The table of loops over rows of floats that each instruction set fills in for compiled training steps: values and
// gradients of activations, sums, norms and losses. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/formats/random_bits.h"
#include "ulp/kernels/training/differentiable_list.h"

namespace ulp::kernels {

/// `rows` of `width` numbers that lie `stride` apart.
struct StepRows {
  const float* data = nullptr;
  int64_t rows = 0, width = 0, stride = 0;
};

/// Losses of a prediction x and a target t, number by number, and their gradients for x.
enum class PointLoss : uint8_t {
  mse,         ///< (x - t)^2
  l1,          ///< |x - t|; the gradient is 0 at 0
  smooth_l1,   ///< d^2 / (2 beta) for d = |x - t| < beta, else d - beta / 2
  huber,       ///< d^2 / 2 for d <= beta, else beta (d - beta / 2)
  bce_logits,  ///< (1 - t) x + log(1 + e^-x)
};

/// A norm of rows: of layer_norm, or with `centered` false of rms_norm, whose mean counts as 0.
struct RowNorm {
  float epsilon = 0;
  bool centered = true;
};

/// Everything is computed in fp32 without contraction, sums of numbers in double or in one fixed order: the same bits on
/// every instruction set. Functions of n numbers take whole rows with what lies between them.
struct StepRowOps {
  void (*value)(Differentiable function, const float* p, const float* x, float* y, int64_t n);
  /// dx = the gradient; x or y may be null where the table does not name it.
  void (*gradient)(Differentiable function, const float* p, const float* g, const float* x, const float* y,
                   float* dx, int64_t n);
  void (*add_scaled)(const float* a, const float* b, float scale, float* y, int64_t n);  ///< a + scale b
  void (*multiply)(const float* a, const float* b, float* y, int64_t n);
  void (*quotient)(const float* a, const float* b, float* y, int64_t n);
  /// The smaller (sign 1) or the larger (-1) of two; a NaN wins.
  void (*select)(const float* a, const float* b, float sign, float* y, int64_t n);
  /// dx = 0 where sign a > sign b, g / 2 where both are equal, else g.
  void (*select_gradient)(const float* g, const float* a, const float* b, float sign, float* dx, int64_t n);
  /// y[i] = scale x[i] where formats::random_bits(key, begin + i) is at least `threshold`, else 0; `begin` is
  /// a multiple of formats::kRandomGroup.
  void (*dropout)(formats::RandomKey key, int64_t begin, uint32_t threshold, float scale, const float* x,
                  float* y, int64_t n);
  void (*fill)(float value, float* y, int64_t n);
  /// sums[j] [+]= the sum of column j, from the first row to the last.
  void (*column_sums)(const StepRows& x, bool adds, float* sums);
  /// sums[r * sums_stride] = the sum of row r, in 16 partial sums.
  void (*row_sums)(const StepRows& x, float* sums, int64_t sums_stride);
  /// The sum of all numbers in double, in 16 partial sums.
  double (*total)(const StepRows& x);
  /// The sum of the losses in double, and dx = scale times their gradients.
  double (*point_loss)(PointLoss loss, float beta, float scale, const StepRows& x, const StepRows& t,
                       float* dx, int64_t dx_stride);
  /// The sum of weight (logsumexp(x) - x[class]) over the rows, and dx = scale weight (softmax(x) - 1[class]). Classes are
  /// in [0, width); weights may be null: 1 each.
  double (*cross_entropy)(const StepRows& x, const int64_t* classes, const float* weights, float scale,
                          float* dx, int64_t dx_stride);
  void (*log_softmax)(const StepRows& x, float* y);  ///< y lies as x does
  /// dx = g - e^y sum(g) in each row; all lie alike.
  void (*log_softmax_gradient)(const StepRows& g, const float* y, float* dx);
  void (*softmax)(const StepRows& x, float* y);
  /// dx = (g - sum(g y)) y in each row.
  void (*softmax_gradient)(const StepRows& g, const float* y, float* dx);
  /// (x - mean) / sqrt(variance + epsilon) [* weight] [+ bias] in each row; y lies as x does.
  void (*layer_norm)(const StepRows& x, const float* weight, const float* bias, RowNorm norm, float* y);
  /// dx, and weight_sums[j] [+]= the sum of g xhat, bias_sums[j] [+]= the sum of g over the rows; each may be
  /// null. moments[2 r] = the mean of row r, moments[2 r + 1] = 1 / sqrt(variance + epsilon), for
  /// layer_norm_sums; may be null.
  void (*layer_norm_gradient)(const StepRows& g, const StepRows& x, const float* weight, RowNorm norm,
                              float* dx, bool weight_adds, float* weight_sums, bool bias_adds,
                              float* bias_sums, float* moments);
  /// The two sums of layer_norm_gradient alone, to the same bits, from the moments of all rows: for some of
  /// the columns.
  void (*layer_norm_sums)(const StepRows& g, const StepRows& x, const float* moments, bool weight_adds,
                          float* weight_sums, bool bias_adds, float* bias_sums);
};

extern const StepRowOps kStepRowOpsPortable, kStepRowOpsAvx2, kStepRowOpsAvx512;

}  // namespace ulp::kernels
