// The loops of step_rows_ops.h, written so that the compiler vectorizes them. Included once by a file per instruction set,
// which names its table with ULP_STEP_ROW_OPS and, where it has a faster one, its formats::random_bits_of_group with
// ULP_RANDOM_BITS_OF_GROUP; everything here has internal linkage.
#include "ulp/kernels/pointwise/math.h"
#include "ulp/kernels/training/step_rows_ops.h"

#ifndef ULP_RANDOM_BITS_OF_GROUP
#define ULP_RANDOM_BITS_OF_GROUP formats::random_bits_of_group
#endif

namespace ulp::kernels {
namespace {

constexpr int64_t kPartialSums = 16;  // fixed, so that the order is the same on every machine

/// Phi(x) + x phi(x), times g.
inline float gelu_gradient(float g, float x) {
  const float cdf = 0.5F * (1.0F + erf_of_normal(x));
  const float pdf = 0.3989422804014327F * exp_negative(-0.5F * x * x);
  return g * (cdf + x * pdf);
}

/// With t = tanh(u): (1 + t) / 2 + x (1 - t^2) u' / 2.
inline float gelu_tanh_gradient(float g, float x) {
  constexpr float kBeta = 0.7978845608028654F, kKappa = 0.044715F;
  const float square = x * x;
  const float t = tanh_activation(kBeta * (x + kKappa * (square * x)));
  const float inner = kBeta * (1.0F + 3.0F * kKappa * square);
  return g * (0.5F * (1.0F + t) + 0.5F * x * ((1.0F - t * t) * inner));
}

inline float silu_gradient(float g, float x) {
  const float s = sigmoid_activation(x);
  return g * s * (1.0F + x * (1.0F - s));
}

/// log(1 + e^(beta x)) / beta, x itself where beta x is above the threshold.
inline float softplus_beta(float x, float beta, float threshold) {
  const float scaled = x * beta, magnitude = scaled < 0.0F ? -scaled : scaled;
  const float y = ((scaled > 0.0F ? scaled : 0.0F) + log1p_of(exp_negative(-magnitude))) / beta;
  return scaled > threshold ? x : y;
}

void step_value(Differentiable function, const float* numbers, const float* from, float* to, int64_t n) {
  const float p[3] = {numbers[0], numbers[1], numbers[2]};
  switch (function) {
#define ULP_CASE(name, expression, ...)         \
  case Differentiable::name:                    \
    for (int64_t i = 0; i < n; ++i) {           \
      [[maybe_unused]] const float x = from[i]; \
      to[i] = expression;                       \
    }                                           \
    break;
    ULP_DIFFERENTIABLE(ULP_CASE)
#undef ULP_CASE
  }
  static_cast<void>(p);
}

void step_gradient(Differentiable function, const float* numbers, const float* gradients, const float* inputs,
                   const float* values, float* to, int64_t n) {
  const float p[3] = {numbers[0], numbers[1], numbers[2]};
  // What a row of the table does not name may be null: then it is not read, as its loads are dead.
  switch (function) {
#define ULP_CASE(name, expression, derivative)       \
  case Differentiable::name:                         \
    for (int64_t i = 0; i < n; ++i) {                \
      [[maybe_unused]] const float g = gradients[i]; \
      [[maybe_unused]] const auto& x = inputs[i];    \
      [[maybe_unused]] const auto& y = values[i];    \
      to[i] = derivative;                            \
    }                                                \
    break;
    ULP_DIFFERENTIABLE(ULP_CASE)
#undef ULP_CASE
  }
  static_cast<void>(p);
}

void step_add_scaled(const float* a, const float* b, float scale, float* y, int64_t n) {
  if (scale == 1.0F) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
    return;
  }
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + scale * b[i];
}

void step_multiply(const float* a, const float* b, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

void step_quotient(const float* a, const float* b, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] / b[i];
}

void step_select(const float* a, const float* b, float sign, float* y, int64_t n) {
  if (sign > 0.0F) {
    for (int64_t i = 0; i < n; ++i) y[i] = smaller_of(a[i], b[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) y[i] = larger_of(a[i], b[i]);
}

void step_select_gradient(const float* g, const float* a, const float* b, float sign, float* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float own = sign * a[i], other = sign * b[i];
    dx[i] = own > other ? 0.0F : (own == other ? g[i] * 0.5F : g[i]);
  }
}

void step_dropout(formats::RandomKey key, int64_t begin, uint32_t threshold, float scale, const float* x,
                  float* y, int64_t n) {
  uint32_t words[formats::kRandomGroup];
  for (int64_t i = 0; i < n; i += formats::kRandomGroup) {
    ULP_RANDOM_BITS_OF_GROUP(key, static_cast<uint64_t>((begin + i) / formats::kRandomGroup), words);
    const int64_t count = n - i < formats::kRandomGroup ? n - i : formats::kRandomGroup;
    for (int64_t l = 0; l < count; ++l) y[i + l] = words[l] >= threshold ? x[i + l] * scale : 0.0F;
  }
}

void step_fill(float value, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = value;
}

void step_column_sums(const StepRows& x, bool adds, float* sums) {
  constexpr int64_t kColumns = 32;  // at a time, in registers
  for (int64_t begin = 0; begin < x.width; begin += kColumns) {
    const int64_t n = x.width - begin < kColumns ? x.width - begin : kColumns;
    float part[kColumns] = {};
    if (adds) {
      for (int64_t j = 0; j < n; ++j) part[j] = sums[begin + j];
    }
    const float* row = x.data + begin;
    if (n == kColumns) {
      for (int64_t r = 0; r < x.rows; ++r, row += x.stride) {
        for (int64_t j = 0; j < kColumns; ++j) part[j] += row[j];
      }
    } else {
      for (int64_t r = 0; r < x.rows; ++r, row += x.stride) {
        for (int64_t j = 0; j < n; ++j) part[j] += row[j];
      }
    }
    for (int64_t j = 0; j < n; ++j) sums[begin + j] = part[j];
  }
}

/// Halves upon halves.
inline double sum_partials(double* sums) {
  for (int64_t half = kPartialSums / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}
inline float sum_partials(float* sums) {
  for (int64_t half = kPartialSums / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}

/// Adds term(j) for j < n to partial sum j % 16.
template <typename T, typename Term>
inline void add_terms(int64_t n, T* sums, const Term& term) {
  int64_t j = 0;
  for (; j + kPartialSums <= n; j += kPartialSums) {
    for (int64_t l = 0; l < kPartialSums; ++l) sums[l] += static_cast<T>(term(j + l));
  }
  for (int64_t l = 0; j + l < n; ++l) sums[l] += static_cast<T>(term(j + l));
}

/// The sum of term(j) for j < n.
template <typename Term>
inline float sum_of_terms(int64_t n, const Term& term) {
  float sums[kPartialSums] = {};
  add_terms(n, sums, term);
  return sum_partials(sums);
}

void step_row_sums(const StepRows& x, float* sums, int64_t sums_stride) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    sums[r * sums_stride] = sum_of_terms(x.width, [row](int64_t j) { return row[j]; });
  }
}

double step_total(const StepRows& x) {
  double sums[kPartialSums] = {};
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    add_terms(x.width, sums, [row](int64_t j) { return row[j]; });
  }
  return sum_partials(sums);
}

struct LossPoint {
  float loss, gradient;
};

template <PointLoss kLoss>
inline LossPoint loss_at(float x, float t, float beta, float scale) {
  const float d = x - t;
  const float magnitude = bits_to_float(float_to_bits(d) & 0x7fffffffU);
  const float sign = d > 0.0F ? 1.0F : (d < 0.0F ? -1.0F : d);
  if constexpr (kLoss == PointLoss::mse) return {d * d, 2.0F * d * scale};
  // As in LibTorch the sign of NaN is 0 in l1_loss alone.
  if constexpr (kLoss == PointLoss::l1) return {magnitude, d == d ? sign * scale : 0.0F};
  if constexpr (kLoss == PointLoss::smooth_l1) {
    return {magnitude < beta ? 0.5F * magnitude * magnitude / beta : magnitude - 0.5F * beta,
            magnitude < beta ? d * scale / beta : sign * scale};
  }
  if constexpr (kLoss == PointLoss::huber) {
    return {magnitude <= beta ? 0.5F * magnitude * magnitude : beta * (magnitude - 0.5F * beta),
            magnitude <= beta ? d * scale : sign * scale * beta};
  }
  const float absolute = bits_to_float(float_to_bits(x) & 0x7fffffffU);
  const float log_sum = (x < 0.0F ? -x : 0.0F) + log1p_of(exp_negative(-absolute));
  return {(1.0F - t) * x + log_sum, (sigmoid_activation(x) - t) * scale};
}

template <PointLoss kLoss>
double point_losses(float beta, float scale, const StepRows& x, const StepRows& t, float* dx,
                    int64_t dx_stride) {
  double sums[kPartialSums] = {};
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    const float* target = t.data + r * t.stride;
    float* to = dx + r * dx_stride;
    add_terms(x.width, sums, [=](int64_t j) {
      const LossPoint point = loss_at<kLoss>(row[j], target[j], beta, scale);
      to[j] = point.gradient;
      return point.loss;
    });
  }
  return sum_partials(sums);
}

double step_point_loss(PointLoss loss, float beta, float scale, const StepRows& x, const StepRows& t,
                       float* dx, int64_t dx_stride) {
  switch (loss) {
    case PointLoss::mse:
      return point_losses<PointLoss::mse>(beta, scale, x, t, dx, dx_stride);
    case PointLoss::l1:
      return point_losses<PointLoss::l1>(beta, scale, x, t, dx, dx_stride);
    case PointLoss::smooth_l1:
      return point_losses<PointLoss::smooth_l1>(beta, scale, x, t, dx, dx_stride);
    case PointLoss::huber:
      return point_losses<PointLoss::huber>(beta, scale, x, t, dx, dx_stride);
    case PointLoss::bce_logits:
      break;
  }
  return point_losses<PointLoss::bce_logits>(beta, scale, x, t, dx, dx_stride);
}

/// NaN where one is.
inline float largest_of_row(const float* x, int64_t n) {
  float largest = x[0];
  for (int64_t j = 1; j < n; ++j) largest = larger_of(largest, x[j]);
  return largest;
}

/// to[j] = e^(x[j] - largest), and their sum.
inline float exponentials(const float* x, int64_t n, float largest, float* to) {
  for (int64_t j = 0; j < n; ++j) to[j] = exp_negative(x[j] - largest);
  return sum_of_terms(n, [to](int64_t j) { return to[j]; });
}

double step_cross_entropy(const StepRows& x, const int64_t* classes, const float* weights, float scale,
                          float* dx, int64_t dx_stride) {
  double sum = 0;
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    float* to = dx + r * dx_stride;
    const float weight = weights == nullptr ? 1.0F : weights[r], factor = weight * scale;
    const float largest = largest_of_row(row, x.width), own = row[classes[r]];  // dx may be x
    const float total = exponentials(row, x.width, largest, to);
    sum += static_cast<double>(weight * (log_of(total) - (own - largest)));
    for (int64_t j = 0; j < x.width; ++j) to[j] = to[j] / total * factor;
    to[classes[r]] -= factor;
  }
  return sum;
}

void step_log_softmax(const StepRows& x, float* y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    float* to = y + r * x.stride;
    const float largest = largest_of_row(row, x.width);
    const float shift = log_of(exponentials(row, x.width, largest, to));
    for (int64_t j = 0; j < x.width; ++j) to[j] = row[j] - largest - shift;
  }
}

void step_log_softmax_gradient(const StepRows& g, const float* y, float* dx) {
  for (int64_t r = 0; r < g.rows; ++r) {
    const float* row = g.data + r * g.stride;
    const float* value = y + r * g.stride;
    float* to = dx + r * g.stride;
    const float total = sum_of_terms(g.width, [row](int64_t j) { return row[j]; });
    for (int64_t j = 0; j < g.width; ++j) to[j] = row[j] - exp_negative(value[j]) * total;
  }
}

void step_softmax(const StepRows& x, float* y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    float* to = y + r * x.stride;
    const float total = exponentials(row, x.width, largest_of_row(row, x.width), to);
    for (int64_t j = 0; j < x.width; ++j) to[j] = to[j] / total;
  }
}

void step_softmax_gradient(const StepRows& g, const float* y, float* dx) {
  for (int64_t r = 0; r < g.rows; ++r) {
    const float* row = g.data + r * g.stride;
    const float* value = y + r * g.stride;
    float* to = dx + r * g.stride;
    const float total = sum_of_terms(g.width, [=](int64_t j) { return row[j] * value[j]; });
    for (int64_t j = 0; j < g.width; ++j) to[j] = (row[j] - total) * value[j];
  }
}

struct RowMoments {
  float mean, factor;  ///< 1 / sqrt(variance + epsilon)
};

inline RowMoments moments_of_row(const float* x, int64_t n, RowNorm norm) {
  const float count = static_cast<float>(n);
  const float mean = norm.centered ? sum_of_terms(n, [x](int64_t j) { return x[j]; }) / count : 0.0F;
  const float variance = sum_of_terms(n, [=](int64_t j) { return (x[j] - mean) * (x[j] - mean); }) / count;
  return {mean, 1.0F / __builtin_sqrtf(variance + norm.epsilon)};
}

void step_layer_norm(const StepRows& x, const float* weight, const float* bias, RowNorm norm, float* y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    float* to = y + r * x.stride;
    const RowMoments m = moments_of_row(row, x.width, norm);
    for (int64_t j = 0; j < x.width; ++j) to[j] = (row[j] - m.mean) * m.factor;
    if (weight != nullptr) {
      for (int64_t j = 0; j < x.width; ++j) to[j] *= weight[j];
    }
    if (bias != nullptr) {
      for (int64_t j = 0; j < x.width; ++j) to[j] += bias[j];
    }
  }
}

/// With h = g weight: dx = (h - mean(h) - xhat mean(h xhat)) / sqrt(variance + epsilon), mean(h) only where centered.
void step_layer_norm_gradient(const StepRows& g, const StepRows& x, const float* weight, RowNorm norm,
                              float* dx, bool weight_adds, float* weight_sums, bool bias_adds,
                              float* bias_sums, float* moments) {
  const int64_t n = x.width;
  if (weight_sums != nullptr && !weight_adds) step_fill(0.0F, weight_sums, n);
  if (bias_sums != nullptr && !bias_adds) step_fill(0.0F, bias_sums, n);
  const float count = static_cast<float>(n);
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* gradient = g.data + r * g.stride;
    const float* row = x.data + r * x.stride;
    const RowMoments m = moments_of_row(row, n, norm);
    if (moments != nullptr) {
      moments[2 * r] = m.mean;
      moments[2 * r + 1] = m.factor;
    }
    if (weight_sums != nullptr) {
      for (int64_t j = 0; j < n; ++j) weight_sums[j] += gradient[j] * ((row[j] - m.mean) * m.factor);
    }
    if (bias_sums != nullptr) {
      for (int64_t j = 0; j < n; ++j) bias_sums[j] += gradient[j];
    }
    if (dx == nullptr) continue;
    float* to = dx + r * x.stride;
    for (int64_t j = 0; j < n; ++j) to[j] = weight == nullptr ? gradient[j] : gradient[j] * weight[j];
    const float sum = sum_of_terms(n, [to](int64_t j) { return to[j]; });
    const float dot = sum_of_terms(n, [=](int64_t j) { return to[j] * ((row[j] - m.mean) * m.factor); });
    const float mean = norm.centered ? sum / count : 0.0F, slope = dot / count;
    for (int64_t j = 0; j < n; ++j) to[j] = (to[j] - mean - (row[j] - m.mean) * m.factor * slope) * m.factor;
  }
}

void step_layer_norm_sums(const StepRows& g, const StepRows& x, const float* moments, bool weight_adds,
                          float* weight_sums, bool bias_adds, float* bias_sums) {
  constexpr int64_t kColumns = 32;  // at a time, in registers
  if (bias_sums != nullptr) step_column_sums(g, bias_adds, bias_sums);
  for (int64_t begin = 0; weight_sums != nullptr && begin < x.width; begin += kColumns) {
    const int64_t n = x.width - begin < kColumns ? x.width - begin : kColumns;
    float part[kColumns] = {};
    if (weight_adds) {
      for (int64_t j = 0; j < n; ++j) part[j] = weight_sums[begin + j];
    }
    for (int64_t r = 0; r < x.rows; ++r) {
      const float* gradient = g.data + r * g.stride + begin;
      const float* row = x.data + r * x.stride + begin;
      const float mean = moments[2 * r], factor = moments[2 * r + 1];
      for (int64_t j = 0; j < n; ++j) part[j] += gradient[j] * ((row[j] - mean) * factor);
    }
    for (int64_t j = 0; j < n; ++j) weight_sums[begin + j] = part[j];
  }
}

}  // namespace

extern const StepRowOps ULP_STEP_ROW_OPS;
const StepRowOps ULP_STEP_ROW_OPS = {
    step_value,          step_gradient,         step_add_scaled,      step_multiply,
    step_quotient,       step_select,           step_select_gradient, step_dropout,
    step_fill,           step_column_sums,      step_row_sums,        step_total,
    step_point_loss,     step_cross_entropy,    step_log_softmax,     step_log_softmax_gradient,
    step_softmax,        step_softmax_gradient, step_layer_norm,      step_layer_norm_gradient,
    step_layer_norm_sums};

}  // namespace ulp::kernels
