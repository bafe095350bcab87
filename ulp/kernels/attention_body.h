// One head of attention as two products of small matrices with a softmax between them, on vectors of the
// compiler. Included once by a file per instruction set, which names its function with ULP_HEAD and gives the
// bytes of a vector and the vectors of a tile; everything here has internal linkage.
#include "ulp/kernels/attention_head.h"
#include "ulp/kernels/curves.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kVector = ULP_VECTOR_BYTES / 4;
typedef float Vector __attribute__((vector_size(ULP_VECTOR_BYTES), aligned(4), may_alias));

inline const Vector& vector_at(const float* p) {
  return *reinterpret_cast<const Vector*>(p);
}
inline Vector& vector_at(float* p) {
  return *reinterpret_cast<Vector*>(p);
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
      for (int n = 0; n < kCount; ++n) sums[m][n] += value * vector_at(b + i * p.b_stride + n * kVector);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < kCount; ++n) {
      vector_at(p.c + (row + m) * p.c_stride + column + n * kVector) = sums[m][n];
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
  constexpr int64_t kLanes = 16;
  const float lowest = -__builtin_inff();
  if (mask != nullptr) {
    for (int64_t i = 0; i < n; ++i) scores[i] = scores[i] * scale + mask[i];
  } else {
    for (int64_t i = 0; i < n; ++i) scores[i] = scores[i] * scale;
  }
  for (int64_t i = n; i < pad_row(n); ++i) scores[i] = lowest;
  float largest = lowest, lanes[kLanes], sums[kLanes] = {};
  for (int64_t l = 0; l < kLanes; ++l) lanes[l] = lowest;
  for (int64_t i = 0; i < n; i += kLanes) {
    // The other way round a NaN would be lost.
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = scores[i + l] <= lanes[l] ? lanes[l] : scores[i + l];
  }
  for (int64_t l = 0; l < kLanes; ++l) largest = lanes[l] <= largest ? largest : lanes[l];
  if (largest == lowest) {
    for (int64_t i = 0; i < n; ++i) scores[i] = 0;
    return 0;
  }
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      scores[i + l] = exp_negative(scores[i + l] - largest);
      sums[l] += scores[i + l];
    }
  }
  float sum = 0;
  for (int64_t l = 0; l < kLanes; ++l) sum += sums[l];
  return sum;
}

void head(const HeadArgs& h) {
  const int64_t keys = pad_row(h.keys), depth = pad_row(h.depth);
  float* transposed = h.scratch;
  float* values = transposed + h.depth * keys;
  float* scores = values + h.keys * depth;
  float* mixed = scores + kQueryBlock * keys;
  for (int64_t first = 0; first < keys; first += kRowPad) {
    const int64_t count = h.keys - first < kRowPad ? h.keys - first : kRowPad;
    for (int64_t d = 0; d < h.depth; ++d) {
      float* to = transposed + d * keys + first;
      for (int64_t i = 0; i < count; ++i) to[i] = h.k[(first + i) * h.stride + d];
      for (int64_t i = count; i < kRowPad; ++i) to[i] = 0;
    }
  }
  for (int64_t key = 0; key < h.keys; ++key) {
    float* to = values + key * depth;
    for (int64_t d = 0; d < h.depth; ++d) to[d] = h.v[key * h.stride + d];
    for (int64_t d = h.depth; d < depth; ++d) to[d] = 0;
  }
  for (int64_t first = 0; first < h.queries; first += kQueryBlock) {
    const int64_t rows = h.queries - first < kQueryBlock ? h.queries - first : kQueryBlock;
    const int64_t last = first + rows;
    const int64_t seen = h.causal && last < h.keys ? last : h.keys;  // by the last of these queries
    multiply({h.q + first * h.stride, h.stride, transposed, keys, scores, keys, h.depth}, rows,
             pad_row(seen));
    float sums[kQueryBlock];
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t mine = h.causal && first + r + 1 < h.keys ? first + r + 1 : h.keys;
      float* row = scores + r * keys;
      sums[r] = soften(row, h.mask, h.scale, mine);
      for (int64_t i = mine; i < seen; ++i) row[i] = 0;
    }
    multiply({scores, keys, values, depth, mixed, depth, seen}, rows, depth);
    for (int64_t r = 0; r < rows; ++r) {
      const float factor = sums[r] == 0.0F ? 0.0F : 1.0F / sums[r];
      float* to = h.y + (first + r) * h.stride;
      for (int64_t d = 0; d < h.depth; ++d) to[d] = mixed[r * depth + d] * factor;
    }
  }
}

}  // namespace

extern const HeadFn ULP_HEAD;
const HeadFn ULP_HEAD = head;

}  // namespace ulp::kernels
