// The table of loops over images of a training step that each instruction set fills in: batch norm, pooling,
// and other orders of their numbers. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/training/conv_products_ops.h"
#include "ulp/kernels/training/step_rows_ops.h"

namespace ulp::kernels {

/// Windows of pixels that are made one. Images lie channels-last.
struct StepPool {
  int64_t in_height = 1, in_width = 1, out_height = 1, out_width = 1, channels = 1;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_height = 1, stride_width = 1;
  int64_t pad_height = 0, pad_width = 0;
  int64_t dilation_height = 1, dilation_width = 1;
  /// Windows are [i in / out, ceil((i + 1) in / out)), as adaptive_avg_pool2d has them; kernels and strides
  /// are not read.
  bool adaptive = false;
  bool count_include_pad = true;
  int64_t divisor = 0;  ///< of averages; 0: the numbers of a window
};

/// Statistics and parameters of each channel: rows of `stride` floats.
struct StepNormRows {
  float* data = nullptr;
  int64_t stride = 0;
  float* mean() const { return data; }
  float* variance() const { return data + stride; }    ///< with the number of rows below
  float* factor() const { return data + 2 * stride; }  ///< 1 / sqrt(variance + epsilon)
  float* scale() const { return data + 3 * stride; }   ///< factor weight
  float* bias() const { return data + 4 * stride; }
  float* unbiased() const {
    return data + 5 * stride;
  }  ///< the variance with one row less below; of batches alone
  static constexpr int64_t kRows = 6;
};

/// A function that follows batch norm.
enum class NormFinish : uint8_t {
  none,
  relu,
  relu6,  ///< the gradient is 0 at 0 and at 6
};

/// Everything is computed without contraction, in one fixed order: the same bits on every instruction set.
/// Rows of the arena are read and written up to a multiple of 16 numbers, or as far as they are wide.
struct StepImageOps {
  /// pixels[n, h, w, c] = rows[n, c, h, w] of images [begin, end); the rows are row-major in rows of `width`
  /// numbers, a multiple of `image_width`, that lie `stride` apart.
  void (*to_pixels)(const StepRows& rows, int64_t height, int64_t image_width, int64_t channels,
                    float* pixels, int64_t stride, int64_t begin, int64_t end);
  void (*from_pixels)(const StepImages& pixels, int64_t height, int64_t image_width, int64_t channels,
                      float* rows, int64_t width, int64_t stride, int64_t begin, int64_t end);
  /// moments[j] = the mean and moments[padded + j] the sum of squared differences from it of column j,
  /// `padded` being the width up to a multiple of 16: in blocks of 64 rows, which are joined in double.
  void (*norm_moments)(const StepRows& x, double* moments);
  /// Joins the moments of `parts` sets of `rows` rows each.
  void (*norm_join)(const double* moments, int64_t stride, int64_t parts, int64_t rows, int64_t width,
                    float epsilon, const float* weight, const float* bias, const StepNormRows& norm);
  /// Takes a mean and a variance that are given.
  void (*norm_given)(const float* mean, const float* variance, int64_t width, float epsilon,
                     const float* weight, const float* bias, const StepNormRows& norm);
  /// y = finish((x - mean) scale + bias [+ addend]), which lie as x does.
  void (*norm_apply)(const StepRows& x, const StepNormRows& norm, const float* addend, NormFinish finish,
                     float* y);
  /// sums[j] = the sum of h and sums[padded + j] that of h (x - mean) factor, with h = g, or 0 where the
  /// finish has no slope; x lies as g does.
  void (*norm_gradient_sums)(const StepRows& g, const float* x, const StepNormRows& norm, NormFinish finish,
                             double* sums);
  /// Joins `parts` such sums, of `count` rows in all: means[j] = that of h, and means[means_stride + j] =
  /// that of h (x - mean) factor, times factor. weight_gradient and bias_gradient [+]= the sums, where they
  /// are not null.
  void (*norm_gradient_join)(const double* parts_of, int64_t stride, int64_t parts, double count,
                             const StepNormRows& norm, int64_t width, float* means, int64_t means_stride,
                             bool weight_adds, float* weight_gradient, bool bias_adds, float* bias_gradient);
  /// dx = scale (h - means[j] - (x - mean) means[means_stride + j]); without `means` scale h.
  void (*norm_gradient)(const StepRows& g, const float* x, const StepNormRows& norm, NormFinish finish,
                        const float* means, int64_t means_stride, float* dx);
  /// y = the largest of each window and places = its tap, the first one of equals; a NaN wins, and the last
  /// one of several.
  void (*max_pool)(const StepPool& pool, const StepImages& x, float* y, float* places, int64_t stride,
                   int64_t begin, int64_t end);
  void (*max_pool_gradient)(const StepPool& pool, const StepImages& g, const float* places, float* dx,
                            int64_t stride, int64_t begin, int64_t end);
  void (*average_pool)(const StepPool& pool, const StepImages& x, float* y, int64_t stride, int64_t begin,
                       int64_t end);
  void (*average_pool_gradient)(const StepPool& pool, const StepImages& g, float* dx, int64_t stride,
                                int64_t begin, int64_t end);
};

extern const StepImageOps kStepImageOpsPortable, kStepImageOpsAvx2, kStepImageOpsAvx512;

}  // namespace ulp::kernels
