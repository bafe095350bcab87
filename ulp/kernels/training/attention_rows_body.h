// The loops of attention_rows_ops.h, written so that the compiler vectorizes them. Included once by a file per instruction
// set, which names its table with ULP_ATTENTION_ROW_OPS and, where it has a faster one, its formats::random_bits_of_group
// with ULP_RANDOM_BITS_OF_GROUP; everything here has internal linkage.
#include "ulp/kernels/pointwise/math.h"
#include "ulp/kernels/training/attention_rows_ops.h"

#ifndef ULP_RANDOM_BITS_OF_GROUP
#define ULP_RANDOM_BITS_OF_GROUP formats::random_bits_of_group
#endif

namespace ulp::kernels {
namespace {

constexpr int64_t kScorePartials = 16;  // fixed, so that the order is the same on every machine

/// The sum of term(j) for j < n: partial sum j % 16, then halves upon halves.
template <typename Term>
inline float sum_of_scores(int64_t n, const Term& term) {
  float sums[kScorePartials] = {};
  int64_t j = 0;
  for (; j + kScorePartials <= n; j += kScorePartials) {
    for (int64_t l = 0; l < kScorePartials; ++l) sums[l] += term(j + l);
  }
  for (int64_t l = 0; j + l < n; ++l) sums[l] += term(j + l);
  for (int64_t half = kScorePartials / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}

/// The largest of x[j] for j < n, in 16 lanes; NaN where one is.
inline float largest_score(const float* x, int64_t n) {
  float lanes[kScorePartials];
  for (int64_t l = 0; l < kScorePartials; ++l) lanes[l] = x[0];
  int64_t j = 0;
  for (; j + kScorePartials <= n; j += kScorePartials) {
    for (int64_t l = 0; l < kScorePartials; ++l) lanes[l] = larger_of(lanes[l], x[j + l]);
  }
  for (int64_t l = 0; j + l < n; ++l) lanes[l] = larger_of(lanes[l], x[j + l]);
  for (int64_t half = kScorePartials / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] = larger_of(lanes[l], lanes[l + half]);
  }
  return lanes[0];
}

/// How many keys row r sees.
inline int64_t visible_keys(const ScoreRows& x, int64_t r) {
  const int64_t seen = x.visible + r * x.step;
  return seen < x.keys ? seen : x.keys;
}

/// The first n scores of row r, scaled and masked.
inline void scale_scores(const ScoreRows& x, int64_t r, int64_t n, float scale) {
  float* row = x.data + r * x.stride;
  if (x.mask == nullptr) {
    for (int64_t j = 0; j < n; ++j) row[j] *= scale;
    return;
  }
  const float* mask = x.mask + r * x.mask_stride;
  if (x.truth) {
    for (int64_t j = 0; j < n; ++j) row[j] = mask[j] != 0.0F ? row[j] * scale : -__builtin_inff();
    return;
  }
  for (int64_t j = 0; j < n; ++j) row[j] = row[j] * scale + mask[j];
}

void score_exponentials(const ScoreRows& x, float scale, float* sums, float* log_sums) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = x.data + r * x.stride;
    const int64_t n = visible_keys(x, r);
    scale_scores(x, r, n, scale);
    const float largest = largest_score(row, n);
    if (x.mask != nullptr && largest == -__builtin_inff()) {  // no key
      for (int64_t j = 0; j < x.keys; ++j) row[j] = 0.0F;
      sums[r] = 1.0F;
      log_sums[r] = __builtin_inff();
      continue;
    }
    for (int64_t j = 0; j < n; ++j) row[j] = exp_negative(row[j] - largest);
    for (int64_t j = n; j < x.keys; ++j) row[j] = 0.0F;
    sums[r] = sum_of_scores(n, [row](int64_t j) { return row[j]; });
    log_sums[r] = largest + log_of(sums[r]);
  }
}

void score_probabilities(const ScoreRows& x, float scale, const float* log_sums) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = x.data + r * x.stride;
    const int64_t n = visible_keys(x, r);
    const float shift = log_sums[r];
    scale_scores(x, r, n, scale);
    for (int64_t j = 0; j < n; ++j) {
      const float exponent = row[j] - shift;
      // Rounding alone takes it above 0.
      row[j] = exp_negative(exponent > 0.0F ? 0.0F : exponent);
    }
    for (int64_t j = n; j < x.keys; ++j) row[j] = 0.0F;
  }
}

void gradient_of_scores(const ScoreRows& x, const float* gradients, const float* dots, float scale) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = x.data + r * x.stride;
    const float* g = gradients + r * x.stride;
    const float dot = dots[r];
    for (int64_t j = 0; j < x.keys; ++j) row[j] = row[j] * (g[j] - dot) * scale;
  }
}

void score_dropout(const ScoreRows& x, formats::RandomKey key, uint64_t first_group, int64_t groups_per_row,
                   uint32_t threshold, float scale, float* keep) {
  uint32_t words[formats::kRandomGroup];
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    float* to = (keep == nullptr ? x.data : keep) + r * x.stride;
    uint64_t group = first_group + static_cast<uint64_t>(r * groups_per_row);
    for (int64_t j = 0; j < x.keys; j += formats::kRandomGroup, ++group) {
      ULP_RANDOM_BITS_OF_GROUP(key, group, words);
      const int64_t n = x.keys - j < formats::kRandomGroup ? x.keys - j : formats::kRandomGroup;
      for (int64_t l = 0; l < n; ++l) to[j + l] = words[l] >= threshold ? row[j + l] * scale : 0.0F;
    }
  }
}

void dots_of_rows(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows,
                  int64_t width, float* dots) {
  for (int64_t r = 0; r < rows; ++r, a += a_stride, b += b_stride)
    dots[r] = sum_of_scores(width, [=](int64_t j) { return a[j] * b[j]; });
}

void divide_by_sums(float* y, int64_t stride, int64_t rows, int64_t width, const float* sums) {
  for (int64_t r = 0; r < rows; ++r, y += stride) {
    const float sum = sums[r];
    for (int64_t j = 0; j < width; ++j) y[j] /= sum;
  }
}

}  // namespace

extern const AttentionRowOps ULP_ATTENTION_ROW_OPS;
const AttentionRowOps ULP_ATTENTION_ROW_OPS = {score_exponentials, score_probabilities, gradient_of_scores,
                                               score_dropout,      dots_of_rows,        divide_by_sums};

}  // namespace ulp::kernels
