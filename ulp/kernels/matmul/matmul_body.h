// Rows times a panel of two vectors, on vectors of the compiler. Included once by a file per instruction set,
// which names its table with ULP_MATMUL_OPS and gives the bytes of a vector and the rows of a tile;
// everything here has internal linkage.
#include "ulp/kernels/matmul/matmul_ops.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kVector = ULP_VECTOR_BYTES / 4, kWidth = 2 * kVector;
typedef float Vector __attribute__((vector_size(ULP_VECTOR_BYTES)));
/// As it may lie in memory: a variable of this type would promise less than the compiler takes it to be.
typedef float StoredVector __attribute__((vector_size(ULP_VECTOR_BYTES), aligned(4), may_alias));

inline __attribute__((always_inline)) Vector load(const float* p) {
  return *reinterpret_cast<const StoredVector*>(p);
}
inline __attribute__((always_inline)) void store(float* p, Vector v) {
  *reinterpret_cast<StoredVector*>(p) = v;
}

template <int kRows>
void tile(const MatmulPanel& p, int64_t row) {
  Vector sums[kRows][2] = {};
  const float* a = p.a + row * p.a_stride;
  const float* b = p.b;
  for (int64_t k = 0; k < p.depth; ++k, b += p.b_stride) {
    const Vector left = load(b), right = load(b + kVector);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const float value = a[m * p.a_stride + k];
      sums[m][0] += value * left;
      sums[m][1] += value * right;
    }
  }
  float* c = p.c + row * p.c_stride;
  if (p.columns == kWidth) {
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      float* to = c + m * p.c_stride;
      store(to, p.adds ? load(to) + sums[m][0] : sums[m][0]);
      store(to + kVector, p.adds ? load(to + kVector) + sums[m][1] : sums[m][1]);
    }
    return;
  }
  float values[kRows][kWidth];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    store(values[m], sums[m][0]);
    store(values[m] + kVector, sums[m][1]);
  }
  for (int m = 0; m < kRows; ++m) {
    for (int64_t i = 0; i < p.columns; ++i) {
      float& to = c[m * p.c_stride + i];
      to = p.adds ? to + values[m][i] : values[m][i];
    }
  }
}

void panel(const MatmulPanel& p) {
  int64_t row = 0;
  for (; row + ULP_TILE_ROWS <= p.rows; row += ULP_TILE_ROWS) tile<ULP_TILE_ROWS>(p, row);
  for (; row + 2 <= p.rows; row += 2) tile<2>(p, row);
  if (row < p.rows) tile<1>(p, row);
}

}  // namespace

extern const MatmulOps ULP_MATMUL_OPS;
const MatmulOps ULP_MATMUL_OPS = {kWidth, panel};

}  // namespace ulp::kernels
