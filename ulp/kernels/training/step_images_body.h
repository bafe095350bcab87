// The loops of step_images_ops.h, on vectors along the channels. Included once by a file per instruction set,
// which names its table with ULP_STEP_IMAGE_OPS and the bytes of its vectors with ULP_VECTOR_BYTES;
// everything here has internal linkage.
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

/// Factors, scales and biases from means and variances.
void finish_norm(int64_t width, float epsilon, const float* weight, const float* bias,
                 const StepNormRows& norm) {
  for (int64_t j = 0; j < width; ++j) {
    norm.factor()[j] = 1.0F / __builtin_sqrtf(norm.variance()[j] + epsilon);
    norm.scale()[j] = weight == nullptr ? norm.factor()[j] : norm.factor()[j] * weight[j];
    norm.bias()[j] = bias == nullptr ? 0.0F : bias[j];
  }
}

typedef float ImageFloats __attribute__((vector_size(ULP_VECTOR_BYTES)));
typedef float StoredImageFloats __attribute__((vector_size(ULP_VECTOR_BYTES), aligned(4), may_alias));
constexpr int64_t kFloats = ULP_VECTOR_BYTES / 4;

inline ImageFloats load_floats(const float* p) {
  return *reinterpret_cast<const StoredImageFloats*>(p);
}
inline void store_floats(float* p, ImageFloats v) {
  *reinterpret_cast<StoredImageFloats*>(p) = v;
}

constexpr int64_t kGroupRows = 8;       ///< read side by side, so that memory is read in order
constexpr int64_t kGroupColumns = 512;  ///< whose sums lie in the nearest cache

/// Moments of n <= kMomentRows rows: means in fp32, the sums of the differences from them, which correct
/// them, and of their squares. At most kGroupColumns columns.
struct BlockMoments {
  float mean[kGroupColumns], rest[kGroupColumns], squares[kGroupColumns];
};
inline void block_moments(const float* x, int64_t stride, int64_t n, int64_t columns, BlockMoments& made) {
  const float share = 1.0F / static_cast<float>(n);
  for (int64_t c = 0; c < columns; ++c) made.mean[c] = made.rest[c] = made.squares[c] = 0.0F;
  for (int64_t begin = 0; begin < n; begin += kGroupRows) {
    const int64_t end = n - begin < kGroupRows ? n : begin + kGroupRows;
    for (int64_t c = 0; c < columns; c += kFloats) {
      ImageFloats sums = load_floats(made.mean + c);
      for (int64_t r = begin; r < end; ++r) sums += load_floats(x + r * stride + c);
      store_floats(made.mean + c, sums);
    }
  }
  for (int64_t c = 0; c < columns; ++c) made.mean[c] *= share;
  for (int64_t begin = 0; begin < n; begin += kGroupRows) {
    const int64_t end = n - begin < kGroupRows ? n : begin + kGroupRows;
    for (int64_t c = 0; c < columns; c += kFloats) {
      const ImageFloats mean = load_floats(made.mean + c);
      ImageFloats rest = load_floats(made.rest + c), squares = load_floats(made.squares + c);
      for (int64_t r = begin; r < end; ++r) {
        const ImageFloats difference = load_floats(x + r * stride + c) - mean;
        rest += difference;
        squares += difference * difference;
      }
      store_floats(made.rest + c, rest);
      store_floats(made.squares + c, squares);
    }
  }
}

/// Moments of columns that are joined with those of more rows.
struct JoinedRows {
  double share, weight;  ///< of the new rows, and of the distance between both means
  JoinedRows(double before, double rows) : share(rows / (before + rows)), weight(before * share) {}
  void join(double mean, double squares, double& to_mean, double& to_squares) const {
    const double difference = mean - to_mean;
    to_mean += difference * share;
    to_squares += squares + difference * difference * weight;
  }
};

void norm_moments(const StepRows& x, double* moments) {
  const int64_t padded = padded_columns(x.width);
  for (int64_t c = 0; c < 2 * padded; ++c) moments[c] = 0;
  BlockMoments part;
  for (int64_t r = 0; r < x.rows; r += kMomentRows) {
    const int64_t n = x.rows - r < kMomentRows ? x.rows - r : kMomentRows;
    const auto count = static_cast<double>(n);
    const double inverse = 1 / count;
    const JoinedRows joined(static_cast<double>(r), count);
    for (int64_t first = 0; first < padded; first += kGroupColumns) {
      const int64_t columns = padded - first < kGroupColumns ? padded - first : kGroupColumns;
      block_moments(x.data + r * x.stride + first, x.stride, n, columns, part);
      for (int64_t c = 0; c < columns; ++c) {
        const double off = static_cast<double>(part.rest[c]) * inverse;
        joined.join(static_cast<double>(part.mean[c]) + off,
                    static_cast<double>(part.squares[c]) - off * off * count, moments[first + c],
                    moments[padded + first + c]);
      }
    }
  }
}

void norm_join(const double* moments, int64_t stride, int64_t parts, int64_t rows, int64_t width,
               float epsilon, const float* weight, const float* bias, const StepNormRows& norm) {
  const int64_t padded = padded_columns(width);
  const auto each = static_cast<double>(rows), count = each * static_cast<double>(parts);
  for (int64_t c = 0; c < padded; c += kImageLanes) {
    double mean[kImageLanes] = {}, squares[kImageLanes] = {};
    for (int64_t p = 0; p < parts; ++p) {
      const double* part = moments + p * stride + c;
      const JoinedRows joined(each * static_cast<double>(p), each);
      for (int64_t l = 0; l < kImageLanes; ++l) joined.join(part[l], part[padded + l], mean[l], squares[l]);
    }
    for (int64_t l = 0; l < kImageLanes; ++l) {
      norm.mean()[c + l] = static_cast<float>(mean[l]);
      norm.variance()[c + l] = static_cast<float>(squares[l] / count);
      norm.unbiased()[c + l] = static_cast<float>(squares[l] / (count - 1));
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
inline ImageFloats norm_value(ImageFloats x, ImageFloats mean, ImageFloats scale, ImageFloats bias) {
  return (x - mean) * scale + bias;
}

constexpr float kNormCap = 6.0F;  ///< of relu6

template <NormFinish kFinish>
inline ImageFloats finished_norm(ImageFloats value) {
  if constexpr (kFinish == NormFinish::none) return value;
  const ImageFloats positive = value < 0.0F ? ImageFloats{} : value;
  if constexpr (kFinish == NormFinish::relu) return positive;
  return positive > kNormCap ? ImageFloats{} + kNormCap : positive;
}

template <NormFinish kFinish, bool kAdds>
void apply_norm(const StepRows& x, const StepNormRows& norm, const float* addend, float* y) {
  const int64_t padded = padded_columns(x.width);
  const float *mean = norm.mean(), *scale = norm.scale(), *bias = norm.bias();
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    const float* other = kAdds ? addend + r * x.stride : nullptr;
    float* to = y + r * x.stride;
    for (int64_t c = 0; c < padded; c += kFloats) {
      ImageFloats value = norm_value(load_floats(row + c), load_floats(mean + c), load_floats(scale + c),
                                     load_floats(bias + c));
      if constexpr (kAdds) value += load_floats(other + c);
      value = finished_norm<kFinish>(value);
      store_floats(to + c, value);
    }
  }
}

template <bool kAdds>
void apply_norm_by(const StepRows& x, const StepNormRows& norm, const float* addend, NormFinish finish,
                   float* y) {
  switch (finish) {
    case NormFinish::none:
      return apply_norm<NormFinish::none, kAdds>(x, norm, addend, y);
    case NormFinish::relu:
      return apply_norm<NormFinish::relu, kAdds>(x, norm, addend, y);
    case NormFinish::relu6:
      return apply_norm<NormFinish::relu6, kAdds>(x, norm, addend, y);
  }
}

void norm_apply(const StepRows& x, const StepNormRows& norm, const float* addend, NormFinish finish,
                float* y) {
  addend != nullptr ? apply_norm_by<true>(x, norm, addend, finish, y)
                    : apply_norm_by<false>(x, norm, addend, finish, y);
}

/// Gradients before the finish of batch norm.
template <NormFinish kFinish>
inline ImageFloats norm_share(ImageFloats g, ImageFloats x, ImageFloats mean, ImageFloats scale,
                              ImageFloats bias) {
  if constexpr (kFinish == NormFinish::none) return g;
  const ImageFloats value = norm_value(x, mean, scale, bias);
  const ImageFloats above = value <= 0.0F ? ImageFloats{} : g;
  if constexpr (kFinish == NormFinish::relu) return above;
  return value >= kNormCap ? ImageFloats{} : above;
}

/// Rows [begin, end) of at most kGroupColumns columns from `first` on, added to sums of h and of h (x -
/// mean).
template <NormFinish kFinish>
inline void add_norm_group(const StepRows& g, const float* x, const StepNormRows& norm, int64_t begin,
                           int64_t end, int64_t first, int64_t columns, float* sums, float* products) {
  for (int64_t c = 0; c < columns; c += kFloats) {
    const int64_t at = first + c;
    const ImageFloats mean = load_floats(norm.mean() + at), scale = load_floats(norm.scale() + at),
                      bias = load_floats(norm.bias() + at);
    ImageFloats sum = load_floats(sums + c), product = load_floats(products + c);
    for (int64_t r = begin; r < end; ++r) {
      const ImageFloats value = load_floats(x + r * g.stride + at);
      const ImageFloats h =
          norm_share<kFinish>(load_floats(g.data + r * g.stride + at), value, mean, scale, bias);
      sum += h;
      product += h * (value - mean);
    }
    store_floats(sums + c, sum);
    store_floats(products + c, product);
  }
}

template <NormFinish kFinish>
void sum_norm_gradient(const StepRows& g, const float* x, const StepNormRows& norm, double* sums) {
  const int64_t padded = padded_columns(g.width);
  for (int64_t c = 0; c < 2 * padded; ++c) sums[c] = 0;
  float parts[2][kGroupColumns];
  for (int64_t begin = 0; begin < g.rows; begin += kMomentRows) {
    const int64_t end = g.rows - begin < kMomentRows ? g.rows : begin + kMomentRows;
    for (int64_t first = 0; first < padded; first += kGroupColumns) {
      const int64_t columns = padded - first < kGroupColumns ? padded - first : kGroupColumns;
      for (int64_t c = 0; c < columns; ++c) parts[0][c] = parts[1][c] = 0.0F;
      for (int64_t r = begin; r < end; r += kGroupRows)
        add_norm_group<kFinish>(g, x, norm, r, end - r < kGroupRows ? end : r + kGroupRows, first, columns,
                                parts[0], parts[1]);
      for (int64_t c = 0; c < columns; ++c) {
        sums[first + c] += static_cast<double>(parts[0][c]);
        sums[padded + first + c] += static_cast<double>(parts[1][c]);
      }
    }
  }
  for (int64_t c = 0; c < padded; ++c) sums[padded + c] *= static_cast<double>(norm.factor()[c]);
}

void norm_gradient_sums(const StepRows& g, const float* x, const StepNormRows& norm, NormFinish finish,
                        double* sums) {
  switch (finish) {
    case NormFinish::none:
      return sum_norm_gradient<NormFinish::none>(g, x, norm, sums);
    case NormFinish::relu:
      return sum_norm_gradient<NormFinish::relu>(g, x, norm, sums);
    case NormFinish::relu6:
      return sum_norm_gradient<NormFinish::relu6>(g, x, norm, sums);
  }
}

void norm_gradient_join(const double* parts_of, int64_t stride, int64_t parts, double count,
                        const StepNormRows& norm, int64_t width, float* means, int64_t means_stride,
                        bool weight_adds, float* weight_gradient, bool bias_adds, float* bias_gradient) {
  const int64_t padded = padded_columns(width);
  for (int64_t c = 0; c < padded; c += kImageLanes) {
    double all[kImageLanes] = {}, products[kImageLanes] = {};
    for (int64_t p = 0; p < parts; ++p) {
      const double* part = parts_of + p * stride + c;
      for (int64_t l = 0; l < kImageLanes; ++l) {
        all[l] += part[l];
        products[l] += part[padded + l];
      }
    }
    for (int64_t l = 0; l < kImageLanes && c + l < width; ++l) {
      const int64_t j = c + l;
      means[j] = static_cast<float>(all[l] / count);
      means[means_stride + j] = static_cast<float>(products[l] / count) * norm.factor()[j];
      const auto of_weight = static_cast<float>(products[l]), of_bias = static_cast<float>(all[l]);
      if (weight_gradient != nullptr)
        weight_gradient[j] = weight_adds ? weight_gradient[j] + of_weight : of_weight;
      if (bias_gradient != nullptr) bias_gradient[j] = bias_adds ? bias_gradient[j] + of_bias : of_bias;
    }
  }
}

template <NormFinish kFinish, bool kBatch>
void give_norm_gradient(const StepRows& g, const float* x, const StepNormRows& norm, const float* means,
                        int64_t means_stride, float* dx) {
  const int64_t padded = padded_columns(g.width);
  const float *mean = norm.mean(), *scale = norm.scale(), *bias = norm.bias();
  for (int64_t r = 0; r < g.rows; ++r) {
    const float *gradient = g.data + r * g.stride, *row = x + r * g.stride;
    float* to = dx + r * g.stride;
    for (int64_t c = 0; c < padded; c += kFloats) {
      const ImageFloats value = load_floats(row + c), centre = load_floats(mean + c),
                        factor = load_floats(scale + c);
      ImageFloats h =
          norm_share<kFinish>(load_floats(gradient + c), value, centre, factor, load_floats(bias + c));
      if constexpr (kBatch)
        h = h - load_floats(means + c) - (value - centre) * load_floats(means + means_stride + c);
      store_floats(to + c, h * factor);
    }
  }
}

template <bool kBatch>
void give_norm_gradient_by(const StepRows& g, const float* x, const StepNormRows& norm, NormFinish finish,
                           const float* means, int64_t means_stride, float* dx) {
  switch (finish) {
    case NormFinish::none:
      return give_norm_gradient<NormFinish::none, kBatch>(g, x, norm, means, means_stride, dx);
    case NormFinish::relu:
      return give_norm_gradient<NormFinish::relu, kBatch>(g, x, norm, means, means_stride, dx);
    case NormFinish::relu6:
      return give_norm_gradient<NormFinish::relu6, kBatch>(g, x, norm, means, means_stride, dx);
  }
}

void norm_gradient(const StepRows& g, const float* x, const StepNormRows& norm, NormFinish finish,
                   const float* means, int64_t means_stride, float* dx) {
  means != nullptr ? give_norm_gradient_by<true>(g, x, norm, finish, means, means_stride, dx)
                   : give_norm_gradient_by<false>(g, x, norm, finish, means, means_stride, dx);
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
