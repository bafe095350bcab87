// One head of attention as two products of small matrices with a softmax between them, on vectors of the
// compiler. Included once by a file per instruction set, which names its function with ULP_HEAD and gives the
// bytes of a vector and the vectors of a tile; everything here has internal linkage.
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

/// Row-major matrices: c[kRows][kCount vectors] = a[kRows][depth] b[depth][...].
struct Product {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t depth;
};

template <int kRows, int kCount>
void tile(const Product& p, int64_t row, int64_t column) {
  Vector sums[kRows][kCount] = {};
  const float* a = p.a + row * p.a_stride;
  const float* b = p.b + column;
  for (int64_t i = 0; i < p.depth; ++i) {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const float value = a[m * p.a_stride + i];
#pragma GCC unroll 8
      for (int n = 0; n < kCount; ++n) sums[m][n] += value * load(b + i * p.b_stride + n * kVector);
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

template <int kCount>
void tile_column(const Product& p, int64_t rows, int64_t column) {
  int64_t row = 0;
  for (; row + 6 <= rows; row += 6) tile<6, kCount>(p, row, column);
  for (; row + 2 <= rows; row += 2) tile<2, kCount>(p, row, column);
  if (row < rows) tile<1, kCount>(p, row, column);
}

/// `columns`: a multiple of a vector.
void multiply(const Product& p, int64_t rows, int64_t columns) {
  int64_t column = 0;
  for (; column + ULP_TILE_VECTORS * kVector <= columns; column += ULP_TILE_VECTORS * kVector) {
    tile_column<ULP_TILE_VECTORS>(p, rows, column);
  }
  for (; column < columns; column += kVector) tile_column<1>(p, rows, column);
}

/// scores = exp(scale * scores + mask - the largest); returns their sum, 0 when every key is masked.
float soften(float* scores, const float* mask, float scale, int64_t n) {
  const float lowest = -__builtin_inff();
  if (mask != nullptr) {
    for (int64_t i = 0; i < n; ++i) scores[i] = scores[i] * scale + mask[i];
  } else {
    for (int64_t i = 0; i < n; ++i) scores[i] = scores[i] * scale;
  }
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

void head(const HeadArgs& h) {
  const int64_t keys = pad_row(h.keys), depth = pad_row(h.depth);
  float* transposed = h.scratch;
  float* values = transposed + h.depth * keys;
  float* scores = values + h.keys * depth;
  float* mixed = scores + kQueryBlock * keys;
  for (int64_t first = 0; first < keys; first += kRowPad) {
    const int64_t count = h.keys - first < kRowPad ? h.keys - first : kRowPad;
    transpose_keys(h.k + first * h.stride, h.stride, h.depth, count, transposed + first, keys);
  }
  for (int64_t key = 0; key < h.keys; ++key) {
    const float* from = h.v + key * h.stride;
    float* to = values + key * depth;
    // The next head's part of these rows, while this one works.
    prefetch_lines(from + h.depth, h.depth * 4);
    prefetch_lines(h.k + key * h.stride + h.depth, h.depth * 4);
    for (int64_t d = 0; d < h.depth; ++d) to[d] = from[d];
    for (int64_t d = h.depth; d < depth; ++d) to[d] = 0;
  }
  for (int64_t first = 0; first < h.queries; first += kQueryBlock) {
    const int64_t rows = h.queries - first < kQueryBlock ? h.queries - first : kQueryBlock;
    const int64_t last = h.earlier + first + rows;
    const int64_t seen = h.causal && last < h.keys ? last : h.keys;  // by the last of these queries
    for (int64_t r = 0; r < rows; ++r) {
      prefetch_lines(h.q + (first + r) * h.stride + h.depth, h.depth * 4);
      prefetch_lines<true>(h.y + (first + r) * h.y_stride, h.depth * 4);
    }
    multiply({h.q + first * h.stride, h.stride, transposed, keys, scores, keys, h.depth}, rows,
             pad_row(seen));
    float sums[kQueryBlock];
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t own = h.earlier + first + r + 1;
      const int64_t mine = h.causal && own < h.keys ? own : h.keys;
      float* row = scores + r * keys;
      sums[r] = soften(row, h.mask, h.scale, mine);
      for (int64_t i = mine; i < seen; ++i) row[i] = 0;
    }
    multiply({scores, keys, values, depth, mixed, depth, seen}, rows, depth);
    for (int64_t r = 0; r < rows; ++r) {
      const float factor = sums[r] == 0.0F ? 0.0F : 1.0F / sums[r];
      float* to = h.y + (first + r) * h.y_stride;
      for (int64_t d = 0; d < h.depth; ++d) to[d] = mixed[r * depth + d] * factor;
    }
  }
}

}  // namespace

extern const HeadFn ULP_HEAD;
const HeadFn ULP_HEAD = head;

}  // namespace ulp::kernels
