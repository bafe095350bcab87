// The loops of step_images_ops.h, written so that the compiler vectorizes them along the channels. Included once by a file per
// instruction set, which names its table with ULP_STEP_IMAGE_OPS; everything here has internal linkage.
#include "ulp/kernels/training/step_images_ops.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kImageLanes = 16;  ///< columns at a time, whatever the vectors are
constexpr int64_t kMomentRows = 64;  ///< of a block

inline int64_t padded_columns(int64_t width) {
  return (width + kImageLanes - 1) / kImageLanes * kImageLanes;
}

void images_to_pixels(const StepRows& rows, int64_t height, int64_t image_width, int64_t channels,
                      float* pixels, int64_t stride, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    float* image = pixels + n * height * image_width * stride;
    for (int64_t h = 0; h < height; ++h) {
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t at = ((n * channels + c) * height + h) * image_width;
        const float* from = rows.data + at / rows.width * rows.stride + at % rows.width;
        float* to = image + h * image_width * stride + c;
        for (int64_t w = 0; w < image_width; ++w) to[w * stride] = from[w];
      }
    }
  }
}

void images_from_pixels(const StepImages& pixels, int64_t height, int64_t image_width, int64_t channels,
                        float* rows, int64_t width, int64_t stride, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    const float* image = pixels.data + n * height * image_width * pixels.stride;
    for (int64_t h = 0; h < height; ++h) {
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t at = ((n * channels + c) * height + h) * image_width;
        const float* from = image + h * image_width * pixels.stride + c;
        float* to = rows + at / width * stride + at % width;
        for (int64_t w = 0; w < image_width; ++w) to[w] = from[w * pixels.stride];
      }
    }
  }
}

/// Moments of 16 columns.
struct ColumnMoments {
  double mean[kImageLanes], squares[kImageLanes];
};

/// `to`, of `before` rows, and `part`, of `rows` ones, together.
inline void join_moments(ColumnMoments& to, double before, const ColumnMoments& part, double rows) {
  const double share = rows / (before + rows), weight = before * share;
  for (int64_t l = 0; l < kImageLanes; ++l) {
    const double difference = part.mean[l] - to.mean[l];
    to.mean[l] += difference * share;
    to.squares[l] += part.squares[l] + difference * difference * weight;
  }
}

/// Of n <= kMomentRows rows: a mean in fp32, and the differences from it, whose sum corrects it.
inline void block_moments(const float* x, int64_t stride, int64_t n, ColumnMoments& made) {
  float sums[kImageLanes] = {}, mean[kImageLanes], rest[kImageLanes] = {}, squares[kImageLanes] = {};
  const float* row = x;
  for (int64_t r = 0; r < n; ++r, row += stride) {
    for (int64_t l = 0; l < kImageLanes; ++l) sums[l] += row[l];
  }
  const float share = 1.0F / static_cast<float>(n);
  for (int64_t l = 0; l < kImageLanes; ++l) mean[l] = sums[l] * share;
  row = x;
  for (int64_t r = 0; r < n; ++r, row += stride) {
    for (int64_t l = 0; l < kImageLanes; ++l) {
      const float difference = row[l] - mean[l];
      rest[l] += difference;
      squares[l] += difference * difference;
    }
  }
  const auto count = static_cast<double>(n);
  for (int64_t l = 0; l < kImageLanes; ++l) {
    const double off = static_cast<double>(rest[l]) / count;
    made.mean[l] = static_cast<double>(mean[l]) + off;
    made.squares[l] = static_cast<double>(squares[l]) - off * off * count;
  }
}

void norm_moments(const StepRows& x, double* moments) {
  const int64_t padded = padded_columns(x.width);
  for (int64_t c = 0; c < padded; c += kImageLanes) {
    ColumnMoments all = {}, part;
    for (int64_t r = 0; r < x.rows; r += kMomentRows) {
      const int64_t n = x.rows - r < kMomentRows ? x.rows - r : kMomentRows;
      block_moments(x.data + r * x.stride + c, x.stride, n, part);
      join_moments(all, static_cast<double>(r), part, static_cast<double>(n));
    }
    for (int64_t l = 0; l < kImageLanes; ++l) {
      moments[c + l] = all.mean[l];
      moments[padded + c + l] = all.squares[l];
    }
  }
}

/// Factors, scales and biases from means and variances.
void finish_norm(int64_t width, float epsilon, const float* weight, const float* bias,
                 const StepNormRows& norm) {
  for (int64_t j = 0; j < width; ++j) {
    norm.factor()[j] = 1.0F / __builtin_sqrtf(norm.variance()[j] + epsilon);
    norm.scale()[j] = weight == nullptr ? norm.factor()[j] : norm.factor()[j] * weight[j];
    norm.bias()[j] = bias == nullptr ? 0.0F : bias[j];
  }
}

void norm_join(const double* moments, int64_t stride, int64_t parts, int64_t rows, int64_t width,
               float epsilon, const float* weight, const float* bias, const StepNormRows& norm) {
  const int64_t padded = padded_columns(width);
  const auto each = static_cast<double>(rows), count = each * static_cast<double>(parts);
  for (int64_t c = 0; c < padded; c += kImageLanes) {
    ColumnMoments all = {}, part;
    for (int64_t p = 0; p < parts; ++p) {
      for (int64_t l = 0; l < kImageLanes; ++l) {
        part.mean[l] = moments[p * stride + c + l];
        part.squares[l] = moments[p * stride + padded + c + l];
      }
      join_moments(all, each * static_cast<double>(p), part, each);
    }
    for (int64_t l = 0; l < kImageLanes; ++l) {
      norm.mean()[c + l] = static_cast<float>(all.mean[l]);
      norm.variance()[c + l] = static_cast<float>(all.squares[l] / count);
      norm.unbiased()[c + l] = static_cast<float>(all.squares[l] / (count - 1));
    }
  }
  finish_norm(width, epsilon, weight, bias, norm);
}

void norm_given(const float* mean, const float* variance, int64_t width, float epsilon, const float* weight,
                const float* bias, const StepNormRows& norm) {
  for (int64_t j = 0; j < width; ++j) {
    norm.mean()[j] = mean[j];
    norm.variance()[j] = variance[j];
  }
  finish_norm(width, epsilon, weight, bias, norm);
}

/// A value of batch norm before its finish.
inline float norm_value(float x, float mean, float scale, float bias) {
  return (x - mean) * scale + bias;
}

template <bool kRelu, bool kAdds>
void apply_norm(const StepRows& x, const StepNormRows& norm, const float* addend, float* y) {
  const int64_t padded = padded_columns(x.width);
  const float *mean = norm.mean(), *scale = norm.scale(), *bias = norm.bias();
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    const float* other = kAdds ? addend + r * x.stride : nullptr;
    float* to = y + r * x.stride;
    for (int64_t c = 0; c < padded; c += kImageLanes) {
      for (int64_t l = c; l < c + kImageLanes; ++l) {
        float value = norm_value(row[l], mean[l], scale[l], bias[l]);
        if constexpr (kAdds) value += other[l];
        to[l] = kRelu && value < 0.0F ? 0.0F : value;
      }
    }
  }
}

void norm_apply(const StepRows& x, const StepNormRows& norm, const float* addend, bool relu, float* y) {
  if (addend != nullptr)
    return relu ? apply_norm<true, true>(x, norm, addend, y) : apply_norm<false, true>(x, norm, addend, y);
  relu ? apply_norm<true, false>(x, norm, addend, y) : apply_norm<false, false>(x, norm, addend, y);
}

/// What comes to batch norm of a gradient.
template <bool kRelu>
inline float norm_share(float g, float x, float mean, float scale, float bias) {
  if constexpr (!kRelu) return g;
  return norm_value(x, mean, scale, bias) <= 0.0F ? 0.0F : g;
}

template <bool kRelu>
void sum_norm_gradient(const StepRows& g, const float* x, const StepNormRows& norm, double* sums) {
  const int64_t padded = padded_columns(g.width);
  for (int64_t c = 0; c < padded; c += kImageLanes) {
    double all[kImageLanes] = {}, products[kImageLanes] = {};
    const float *mean = norm.mean() + c, *scale = norm.scale() + c, *bias = norm.bias() + c;
    for (int64_t begin = 0; begin < g.rows; begin += kMomentRows) {
      const int64_t end = g.rows - begin < kMomentRows ? g.rows : begin + kMomentRows;
      float part[kImageLanes] = {}, product[kImageLanes] = {};
      for (int64_t r = begin; r < end; ++r) {
        const float *gradient = g.data + r * g.stride + c, *row = x + r * g.stride + c;
        for (int64_t l = 0; l < kImageLanes; ++l) {
          const float h = norm_share<kRelu>(gradient[l], row[l], mean[l], scale[l], bias[l]);
          part[l] += h;
          product[l] += h * (row[l] - mean[l]);
        }
      }
      for (int64_t l = 0; l < kImageLanes; ++l) {
        all[l] += static_cast<double>(part[l]);
        products[l] += static_cast<double>(product[l]);
      }
    }
    for (int64_t l = 0; l < kImageLanes; ++l) {
      sums[c + l] = all[l];
      sums[padded + c + l] = products[l] * static_cast<double>(norm.factor()[c + l]);
    }
  }
}

void norm_gradient_sums(const StepRows& g, const float* x, const StepNormRows& norm, bool relu,
                        double* sums) {
  relu ? sum_norm_gradient<true>(g, x, norm, sums) : sum_norm_gradient<false>(g, x, norm, sums);
}

void norm_gradient_join(const double* parts_of, int64_t stride, int64_t parts, int64_t width, float* sums,
                        int64_t sums_stride, bool weight_adds, float* weight_gradient, bool bias_adds,
                        float* bias_gradient) {
  const int64_t padded = padded_columns(width);
  for (int64_t j = 0; j < width; ++j) {
    double all = 0, products = 0;
    for (int64_t p = 0; p < parts; ++p) {
      all += parts_of[p * stride + j];
      products += parts_of[p * stride + padded + j];
    }
    sums[j] = static_cast<float>(all);
    sums[sums_stride + j] = static_cast<float>(products);
    if (weight_gradient != nullptr)
      weight_gradient[j] = weight_adds ? weight_gradient[j] + sums[sums_stride + j] : sums[sums_stride + j];
    if (bias_gradient != nullptr) bias_gradient[j] = bias_adds ? bias_gradient[j] + sums[j] : sums[j];
  }
}

template <bool kRelu, bool kBatch>
void give_norm_gradient(const StepRows& g, const float* x, const StepNormRows& norm, const float* sums,
                        int64_t sums_stride, float share, float* dx) {
  const int64_t padded = padded_columns(g.width);
  const float *mean = norm.mean(), *scale = norm.scale(), *bias = norm.bias(), *factor = norm.factor();
  for (int64_t c = 0; c < padded; c += kImageLanes) {
    float even[kImageLanes] = {}, slope[kImageLanes] = {};
    if constexpr (kBatch) {
      for (int64_t l = 0; l < kImageLanes; ++l) {
        even[l] = sums[c + l] * share;
        slope[l] = sums[sums_stride + c + l] * share * factor[c + l];
      }
    }
    for (int64_t r = 0; r < g.rows; ++r) {
      const float *gradient = g.data + r * g.stride + c, *row = x + r * g.stride + c;
      float* to = dx + r * g.stride + c;
      for (int64_t l = 0; l < kImageLanes; ++l) {
        const float h = norm_share<kRelu>(gradient[l], row[l], mean[c + l], scale[c + l], bias[c + l]);
        const float left = kBatch ? h - even[l] - (row[l] - mean[c + l]) * slope[l] : h;
        to[l] = left * scale[c + l];
      }
    }
  }
}

void norm_gradient(const StepRows& g, const float* x, const StepNormRows& norm, bool relu, const float* sums,
                   int64_t sums_stride, double count, float* dx) {
  const auto share = static_cast<float>(1.0 / count);
  if (sums == nullptr) {
    relu ? give_norm_gradient<true, false>(g, x, norm, sums, sums_stride, share, dx)
         : give_norm_gradient<false, false>(g, x, norm, sums, sums_stride, share, dx);
    return;
  }
  relu ? give_norm_gradient<true, true>(g, x, norm, sums, sums_stride, share, dx)
       : give_norm_gradient<false, true>(g, x, norm, sums, sums_stride, share, dx);
}

}  // namespace
}  // namespace ulp::kernels

#include "ulp/kernels/training/step_pools_body.h"

namespace ulp::kernels {

extern const StepImageOps ULP_STEP_IMAGE_OPS;
const StepImageOps ULP_STEP_IMAGE_OPS = {
    images_to_pixels,  images_from_pixels, norm_moments,         norm_join,     norm_given,
    norm_apply,        norm_gradient_sums, norm_gradient_join,   norm_gradient, max_pool,
    max_pool_gradient, average_pool,       average_pool_gradient};

}  // namespace ulp::kernels
