// Tiles of sums that stay in registers. Included once by a file per instruction set, which gives its vectors as
// `ProductLanes` and names its table with ULP_LAYER_PRODUCT_OPS; everything here has internal linkage.
#include "ulp/kernels/training/layer_product_ops.h"

namespace ulp::kernels {
namespace {

using ProductVector = ProductLanes::F;
constexpr int64_t kProductLanes = ProductLanes::kLanes;

/// The last of `kVectors` vectors has n columns if kPartial.
template <bool kPartial>
inline __attribute__((always_inline)) ProductVector load_columns(const float* p, int64_t n) {
  if constexpr (kPartial) {
    return ProductLanes::load_first(p, n);
  } else {
    return ProductLanes::load(p);
  }
}

inline __attribute__((always_inline)) ProductVector finished(const LayerProduct& p, ProductVector sum) {
  if (p.finish == ProductFinish::relu) return ProductLanes::max(ProductLanes::set1(0.0F), sum);
  if (p.finish == ProductFinish::leaky_relu)
    return ProductLanes::max(ProductLanes::mul(ProductLanes::set1(p.slope), sum), sum);
  return sum;
}

/// kRows rows from `row` on and kVectors vectors of columns from `column` on; partial ones are single vectors.
template <int kRows, int kVectors, bool kPartial>
void sum_tile(const LayerProduct& p, int64_t row, int64_t column, int64_t n) {
  ProductVector sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = column + v * kProductLanes;
      sums[m][v] = p.bias != nullptr ? load_columns<kPartial>(p.bias + at, n)
                   : p.adds          ? load_columns<kPartial>(p.y + (row + m) * p.y_row + at, n)
                                     : ProductLanes::set1(0.0F);
    }
  }
  const float* a = p.a + row * p.a_row;
  const float* b = p.b + column;
  const int64_t a_row = p.a_row, a_inner = p.a_inner, b_inner = p.b_inner;
  for (int64_t k = p.inner; k > 0; --k, a += a_inner, b += b_inner) {
    ProductVector right[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) right[v] = load_columns<kPartial>(b + v * kProductLanes, n);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const ProductVector left = ProductLanes::set1(a[m * a_row]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[m][v] = ProductLanes::fma(left, right[v], sums[m][v]);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    float* to = p.y + (row + m) * p.y_row + column;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const ProductVector made = finished(p, sums[m][v]);
      if constexpr (kPartial) {
        ProductLanes::store_first(to, made, n);
      } else {
        ProductLanes::store(to + v * kProductLanes, made);
      }
    }
  }
}

/// All rows of a panel of columns, kRows at a time, and then fewer.
template <int kRows, int kVectors, bool kPartial>
void sum_rows(const LayerProduct& p, int64_t row, int64_t column, int64_t n) {
  for (; row + kRows <= p.rows; row += kRows) sum_tile<kRows, kVectors, kPartial>(p, row, column, n);
  if constexpr (kRows > 1) {
    if (row < p.rows) sum_rows<kRows / 2, kVectors, kPartial>(p, row, column, n);
  }
}

/// Columns from `column` on in panels of kVectors vectors, and then of fewer. A panel has about 12 vectors of sums: as
/// many chains as hide the latency of a multiply-add.
template <int kVectors>
void sum_panels(const LayerProduct& p, int64_t column) {
  constexpr int kRows = kVectors >= 8 ? 1 : 12 / kVectors;
  for (; column + kVectors * kProductLanes <= p.columns; column += kVectors * kProductLanes)
    sum_rows<kRows, kVectors, false>(p, 0, column, 0);
  if constexpr (kVectors > 1) {
    sum_panels<kVectors / 2>(p, column);
  } else {
    if (column < p.columns) sum_rows<kRows, 1, true>(p, 0, column, p.columns - column);
  }
}

void layer_product(const LayerProduct& p) {
  if (p.rows > 5) return sum_panels<2>(p, 0);
  if (p.rows > 1) return sum_panels<4>(p, 0);
  sum_panels<8>(p, 0);
}

void transpose_matrix(const float* from, int64_t rows, int64_t columns, float* to, int64_t to_step) {
  constexpr int64_t kSide = 8;
  int64_t r = 0;
  for (; r + kSide <= rows; r += kSide) {
    int64_t c = 0;
    for (; c + kSide <= columns; c += kSide)
      ProductLanes::transpose8(from + r * columns + c, columns, to + c * to_step + r, to_step);
    for (; c < columns; ++c) {
      for (int64_t i = 0; i < kSide; ++i) to[c * to_step + r + i] = from[(r + i) * columns + c];
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[c * to_step + r] = from[r * columns + c];
  }
}

}  // namespace

extern const LayerProductOps ULP_LAYER_PRODUCT_OPS;
const LayerProductOps ULP_LAYER_PRODUCT_OPS = {layer_product, transpose_matrix};

}  // namespace ulp::kernels
