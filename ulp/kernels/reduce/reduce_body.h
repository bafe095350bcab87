// The loops of reductions. Included once by a file per instruction set, which names its table with
// ULP_REDUCE_OPS; everything here has internal linkage.
#include "ulp/kernels/elementwise/activations.h"
#include "ulp/kernels/reduce/reduce_ops.h"

namespace ulp::kernels {
namespace {

/// Partial results; fixed, so that the order is the same on every machine, and many, so that none waits for
/// the one before.
constexpr int64_t kLanes = 32, kExtremes = 64;

template <Term kTerm>
inline double term_of(float x, double center) {
  if constexpr (kTerm == Term::absolute) return static_cast<double>(x < 0 ? -x : x);
  if constexpr (kTerm == Term::square) return static_cast<double>(x) * static_cast<double>(x);
  if constexpr (kTerm == Term::difference) {
    const double d = static_cast<double>(x) - center;
    return d * d;
  }
  if constexpr (kTerm == Term::exp) return static_cast<double>(exp_negative(x - static_cast<float>(center)));
  if constexpr (kTerm == Term::nonzero) return x == 0.0F ? 0.0 : 1.0;
  return static_cast<double>(x);
}

template <Term kTerm>
inline double joined(double sum, double term) {
  if constexpr (kTerm == Term::product) return sum * term;
  return sum + term;
}

/// In floats first, in a loop of its own so that it vectorizes.
double sum_of_exps(const float* x, int64_t n, float center) {
  constexpr int64_t kBlock = 128;
  double lanes[kLanes] = {};
  float block[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = n - begin < kBlock ? n - begin : kBlock;
    for (int64_t i = 0; i < count; ++i) block[i] = exp_negative(x[begin + i] - center);
    for (int64_t i = count; i < kBlock; ++i) block[i] = 0;
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] += static_cast<double>(block[i + l]);
    }
  }
  double sum = 0;
  for (int64_t l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

template <Term kTerm>
double sum_row(const float* x, int64_t n, double center) {
  if constexpr (kTerm == Term::exp) return sum_of_exps(x, n, static_cast<float>(center));
  constexpr double kNothing = kTerm == Term::product ? 1 : 0;
  double lanes[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) lanes[l] = kNothing;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = joined<kTerm>(lanes[l], term_of<kTerm>(x[i + l], center));
  }
  double sum = kNothing;
  for (; i < n; ++i) sum = joined<kTerm>(sum, term_of<kTerm>(x[i], center));
  for (int64_t l = 0; l < kLanes; ++l) sum = joined<kTerm>(sum, lanes[l]);
  return sum;
}

template <Term kTerm>
void sum_columns(const float* x, int64_t rows, int64_t stride, int64_t n, const double* center,
                 double* sums) {
  const auto term = [&](const float* row, int64_t c) __attribute__((always_inline)) {
    return term_of<kTerm>(row[c], kTerm == Term::difference || kTerm == Term::exp ? center[c] : 0.0);
  };
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float *w = x + r * stride, *v = w + stride, *u = v + stride, *t = u + stride;
    for (int64_t c = 0; c < n; ++c) {
      const double left = joined<kTerm>(term(w, c), term(v, c));
      sums[c] = joined<kTerm>(sums[c], joined<kTerm>(left, joined<kTerm>(term(u, c), term(t, c))));
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < n; ++c) sums[c] = joined<kTerm>(sums[c], term(x + r * stride, c));
  }
}

/// As a variable of the template, so that the loops have no choice in them.
template <typename F>
inline auto with_term(Term term, F f) {
  switch (term) {
    case Term::absolute:
      return f.template operator()<Term::absolute>();
    case Term::square:
      return f.template operator()<Term::square>();
    case Term::difference:
      return f.template operator()<Term::difference>();
    case Term::exp:
      return f.template operator()<Term::exp>();
    case Term::nonzero:
      return f.template operator()<Term::nonzero>();
    case Term::product:
      return f.template operator()<Term::product>();
    default:
      return f.template operator()<Term::plain>();
  }
}

double any_sum_row(Term term, const float* x, int64_t n, double center) {
  return with_term(term, [&]<Term kTerm>() { return sum_row<kTerm>(x, n, center); });
}

void any_sum_columns(Term term, const float* x, int64_t rows, int64_t stride, int64_t n, const double* center,
                     double* sums) {
  with_term(term, [&]<Term kTerm>() { sum_columns<kTerm>(x, rows, stride, n, center, sums); });
}

template <bool kLargest, bool kAbsolute>
inline float better(float best, float x) {
  const float v = kAbsolute && x < 0 ? -x : x;
  const bool wins = kLargest ? v > best : v < best;
  return static_cast<int>(wins) | static_cast<int>(v != v) ? v : best;
}

template <bool kLargest, bool kAbsolute>
float extreme_row(const float* x, int64_t n) {
  const float first = kAbsolute && x[0] < 0 ? -x[0] : x[0];
  float lanes[kExtremes];
  for (int64_t l = 0; l < kExtremes; ++l) lanes[l] = first;
  int64_t i = 0;
  for (; i + kExtremes <= n; i += kExtremes) {
#pragma GCC unroll 1
    for (int64_t l = 0; l < kExtremes; ++l) lanes[l] = better<kLargest, kAbsolute>(lanes[l], x[i + l]);
  }
  float best = first;
  for (; i < n; ++i) best = better<kLargest, kAbsolute>(best, x[i]);
  for (int64_t l = 0; l < kExtremes; ++l) best = better<kLargest, kAbsolute>(best, lanes[l]);
  return best;
}

template <bool kLargest, bool kAbsolute>
void extreme_columns(const float* x, int64_t rows, int64_t stride, int64_t n, float* best) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * stride;
    for (int64_t c = 0; c < n; ++c) best[c] = better<kLargest, kAbsolute>(best[c], row[c]);
  }
}

float any_extreme_row(bool largest, bool absolute, const float* x, int64_t n) {
  if (absolute) return extreme_row<true, true>(x, n);
  return largest ? extreme_row<true, false>(x, n) : extreme_row<false, false>(x, n);
}

void any_extreme_columns(bool largest, bool absolute, const float* x, int64_t rows, int64_t stride, int64_t n,
                         float* best) {
  if (absolute) return extreme_columns<true, true>(x, rows, stride, n, best);
  if (largest) return extreme_columns<true, false>(x, rows, stride, n, best);
  extreme_columns<false, false>(x, rows, stride, n, best);
}

}  // namespace

extern const ReduceOps ULP_REDUCE_OPS;
const ReduceOps ULP_REDUCE_OPS = {any_sum_row, any_extreme_row, any_sum_columns, any_extreme_columns};

}  // namespace ulp::kernels
