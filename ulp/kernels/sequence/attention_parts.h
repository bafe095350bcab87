// What heads of attention are made of: products of small matrices, softmax, transposing, on vectors of the compiler. For
// files that give the bytes of a vector (ULP_VECTOR_BYTES) and the vectors of a tile (ULP_TILE_VECTORS); everything here has
// internal linkage.
#pragma once

#include "ulp/kernels/elementwise/activations.h"
#include "ulp/kernels/isa/lanes.h"
#include "ulp/kernels/isa/prefetch.h"
#include "ulp/kernels/sequence/attention_head.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kVector = ULP_VECTOR_BYTES / 4;
typedef float Vector __attribute__((vector_size(ULP_VECTOR_BYTES)));
/// As it may lie in memory: a variable of this type would promise less than the compiler takes it to be.
typedef float StoredVector __attribute__((vector_size(ULP_VECTOR_BYTES), aligned(4), may_alias));

inline __attribute__((always_inline)) Vector load(const float* p) {
  return *reinterpret_cast<const StoredVector*>(p);
}
inline __attribute__((always_inline)) void store(float* p, Vector v) {
  *reinterpret_cast<StoredVector*>(p) = v;
}

/// A step of a product of floats.
struct FloatStep {
  static Vector add(Vector sum, float a, Vector b) { return sum + a * b; }
};

/// Row-major matrices: c[kRows][kCount vectors] = a[kRows][depth] b[depth][...], in steps of four bytes of a and b.
struct Product {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t depth;
};

template <typename Step, int kRows, int kCount>
void tile(const Product& p, int64_t row, int64_t column) {
  Vector sums[kRows][kCount] = {};
  const float* a = p.a + row * p.a_stride;
  const float* b = p.b + column;
  for (int64_t i = 0; i < p.depth; ++i) {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const float value = a[m * p.a_stride + i];
#pragma GCC unroll 8
      for (int n = 0; n < kCount; ++n)
        sums[m][n] = Step::add(sums[m][n], value, load(b + i * p.b_stride + n * kVector));
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < kCount; ++n) {
      store(p.c + (row + m) * p.c_stride + column + n * kVector, sums[m][n]);
    }
  }
}

template <typename Step, int kCount>
void tile_column(const Product& p, int64_t rows, int64_t column) {
  int64_t row = 0;
  for (; row + 6 <= rows; row += 6) tile<Step, 6, kCount>(p, row, column);
  for (; row + 2 <= rows; row += 2) tile<Step, 2, kCount>(p, row, column);
  if (row < rows) tile<Step, 1, kCount>(p, row, column);
}

/// `columns`: a multiple of a vector.
template <typename Step>
void multiply(const Product& p, int64_t rows, int64_t columns) {
  int64_t column = 0;
  for (; column + ULP_TILE_VECTORS * kVector <= columns; column += ULP_TILE_VECTORS * kVector) {
    tile_column<Step, ULP_TILE_VECTORS>(p, rows, column);
  }
  for (; column < columns; column += kVector) tile_column<Step, 1>(p, rows, column);
}

/// tanh to about 2 ulp: a polynomial where 1 - e^(-2|x|) cancels (Moshier's Cephes).
static inline float tanh_of_score(float x) {
  const float magnitude = bits_to_float(float_to_bits(x) & 0x7fffffffU), z = x * x;
  float p = -5.70498872745e-3F;
  p = p * z + 2.06390887954e-2F;
  p = p * z - 5.37397155531e-2F;
  p = p * z + 1.33314422036e-1F;
  p = p * z - 3.33332819422e-1F;
  const float small = p * z * x + x, large = tanh_activation(x);
  return magnitude < 0.625F ? small : large;
}

/// Weighs the keys first to last - 1 of n: scores = exp(s - the largest), s being scale * score + mask,
/// or softcap * tanh(scale * score / softcap) + mask; 0 before `first`. Returns their sum, 0 when every key
/// is masked.
inline float soften(float* scores, const float* mask, float scale, float softcap, SeenKeys seen) {
  const float lowest = -__builtin_inff();
  const int64_t n = seen.last;
  if (softcap > 0) {
    const float inner = scale / softcap;
    for (int64_t i = 0; i < n; ++i) scores[i] = softcap * tanh_of_score(scores[i] * inner);
    for (int64_t i = 0; mask != nullptr && i < n; ++i) scores[i] += mask[i];
  } else if (mask != nullptr) {
    for (int64_t i = 0; i < n; ++i) scores[i] = scores[i] * scale + mask[i];
  } else {
    for (int64_t i = 0; i < n; ++i) scores[i] = scores[i] * scale;
  }
  for (int64_t i = 0; i < seen.first; ++i) scores[i] = lowest;
  for (int64_t i = n; i < pad_row(n); ++i) scores[i] = lowest;
  Lanes part, lanes, sums;
  fill(lanes, lowest);
  for (int64_t i = 0; i < n; i += Lanes::kCount) {
    load(part, scores + i);
    take_larger(lanes, part);
  }
  const float largest = largest_of(lanes);
  if (largest == lowest) {
    for (int64_t i = 0; i < n; ++i) scores[i] = 0;
    return 0;
  }
  fill(sums, 0.0F);
  for (int64_t i = 0; i < n; i += Lanes::kCount) {
    load(part, scores + i);
    exp_below(part, largest);
    store(scores + i, part);
    add(sums, part);
  }
  return sum_of(sums);
}

/// Weighted sums of values, `step` from row to row, divided by the sums of their weights: zeros where there is no weight.
inline void divide_rows(const float* mixed, int64_t step, const float* sums, int64_t rows, int64_t depth,
                        float* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const float factor = sums[r] == 0.0F ? 0.0F : 1.0F / sums[r];
    for (int64_t d = 0; d < depth; ++d) y[r * y_stride + d] = mixed[r * step + d] * factor;
  }
}

/// ULP_SHUFFLE(a, b, places...): those lanes of a and, counted on, of b.
#if __has_builtin(__builtin_shufflevector)
#define ULP_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else  // GCC 11
typedef int32_t Places __attribute__((vector_size(ULP_VECTOR_BYTES)));
#define ULP_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Places{__VA_ARGS__})
#endif
/// The lower halves of two vectors, then the upper ones, lane by lane: a0 b0 a1 b1 ...
#if ULP_VECTOR_BYTES == 16
#define ULP_LOW(a, b) ULP_SHUFFLE(a, b, 0, 4, 1, 5)
#define ULP_HIGH(a, b) ULP_SHUFFLE(a, b, 2, 6, 3, 7)
#elif ULP_VECTOR_BYTES == 32
#define ULP_LOW(a, b) ULP_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ULP_HIGH(a, b) ULP_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define ULP_LOW(a, b) ULP_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ULP_HIGH(a, b) ULP_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#endif

/// rows[i][l] -> rows[l][i]: each round interleaves row i with row i + half, a rotation of the bits of the
/// place (row, lane) by one.
inline __attribute__((always_inline)) void transpose(Vector (&rows)[kVector]) {
#pragma GCC unroll 4
  for (int64_t round = 1; round < kVector; round *= 2) {
    Vector mixed[kVector];
#pragma GCC unroll 8
    for (int i = 0; i < kVector / 2; ++i) {
      mixed[2 * i] = ULP_LOW(rows[i], rows[i + kVector / 2]);
      mixed[2 * i + 1] = ULP_HIGH(rows[i], rows[i + kVector / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kVector; ++i) rows[i] = mixed[i];
  }
}

/// to[d][i] = rows[i][d], zeros from `count` to kRowPad; `step` from row to row of `to`.
void transpose_keys(const float* rows, int64_t stride, int64_t depth, int64_t count, float* to,
                    int64_t step) {
  static_assert(kRowPad % kVector == 0);
  int64_t d = 0;
  for (; count == kRowPad && d + kVector <= depth; d += kVector) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRowPad; i += kVector) {
      Vector block[kVector];
#pragma GCC unroll 16
      for (int l = 0; l < kVector; ++l) block[l] = load(rows + (i + l) * stride + d);
      transpose(block);
#pragma GCC unroll 16
      for (int l = 0; l < kVector; ++l) store(to + (d + l) * step + i, block[l]);
    }
  }
  for (; d < depth; ++d) {
    for (int64_t i = 0; i < kRowPad; ++i) to[d * step + i] = i < count ? rows[i * stride + d] : 0;
  }
}

}  // namespace
}  // namespace ulp::kernels
