// Tiles of sums that stay in registers. Included once by a file per instruction set, which gives its vectors as
// `ProductLanes` and names its table with ULP_LAYER_PRODUCT_OPS; everything here has internal linkage.
#include "ulp/kernels/training/layer_product_ops.h"

namespace ulp::kernels {
namespace {

using ProductVector = ProductLanes::F;
constexpr int64_t kProductLanes = ProductLanes::kLanes;
constexpr int64_t kInnerBlock = 2048 / kProductLanes;  ///< of a panel of two vectors: 16 KiB

/// The last of `kVectors` vectors has n columns if kPartial.
template <bool kPartial>
inline __attribute__((always_inline)) ProductVector load_columns(const float* p, int64_t n) {
  if constexpr (kPartial) {
    return ProductLanes::load_first(p, n);
  } else {
    return ProductLanes::load(p);
  }
}

/// Sums with the finish of the product.
template <int kRows, int kVectors>
inline __attribute__((always_inline)) void finish_sums(const LayerProduct& p,
                                                       ProductVector (&sums)[kRows][kVectors]) {
  if (p.finish == ProductFinish::none) return;
  if (p.finish == ProductFinish::relu) {
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[m][v] = ProductLanes::max(ProductLanes::set1(0.0F), sums[m][v]);
    }
    return;
  }
  const ProductVector slope = ProductLanes::set1(p.slope);
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      sums[m][v] = ProductLanes::max(ProductLanes::mul(slope, sums[m][v]), sums[m][v]);
  }
}

/// What sums start from.
template <int kRows, int kVectors, bool kPartial>
inline __attribute__((always_inline)) void start_sums(const LayerProduct& p, int64_t row, int64_t column,
                                                      int64_t n, ProductVector (&sums)[kRows][kVectors]) {
  if (p.adds) {
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v)
        sums[m][v] = load_columns<kPartial>(p.y + (row + m) * p.y_row + column + v * kProductLanes, n);
    }
    return;
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const ProductVector start = p.bias != nullptr
                                    ? load_columns<kPartial>(p.bias + column + v * kProductLanes, n)
                                    : ProductLanes::set1(0.0F);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) sums[m][v] = start;
  }
}

/// kRows rows from `row` on and kVectors vectors of columns from `column` on; partial ones are single vectors.
template <int kRows, int kVectors, bool kPartial>
void sum_tile(const LayerProduct& p, int64_t row, int64_t column, int64_t n) {
  ProductVector sums[kRows][kVectors];
  start_sums<kRows, kVectors, kPartial>(p, row, column, n, sums);
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
  finish_sums(p, sums);
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    float* to = p.y + (row + m) * p.y_row + column;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kPartial) {
        ProductLanes::store_first(to, sums[m][v], n);
      } else {
        ProductLanes::store(to + v * kProductLanes, sums[m][v]);
      }
    }
  }
}

/// All rows of a panel of columns from `row` on, kRows at a time, and then fewer.
template <int kRows, int kVectors, bool kPartial>
void sum_rows(const LayerProduct& p, int64_t row, int64_t column, int64_t n) {
  for (; row + kRows <= p.rows; row += kRows) sum_tile<kRows, kVectors, kPartial>(p, row, column, n);
  if constexpr (kRows > 1) {
    // Single vectors have so many sizes of tiles that only halves are made.
    constexpr int kFewer = kVectors == 1 ? kRows / 2 : kRows - 1;
    if (row < p.rows) sum_rows<kFewer, kVectors, kPartial>(p, row, column, n);
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

/// Panels of two vectors for products with many rows: each is copied to where its rows lie side by side, so that it stays in
/// the nearest cache whatever the step between rows is.
void sum_copied_panels(const LayerProduct& p) {
  constexpr int64_t kWidth = 2 * kProductLanes;
  alignas(64) float panel[kInnerBlock * kWidth];
  int64_t column = 0;
  for (; column + kWidth <= p.columns; column += kWidth) {
    const float* from = p.b + column;
    for (int64_t k = 0; k < p.inner; ++k, from += p.b_inner) {
      ProductLanes::store(panel + k * kWidth, ProductLanes::load(from));
      ProductLanes::store(panel + k * kWidth + kProductLanes, ProductLanes::load(from + kProductLanes));
    }
    LayerProduct part = p;
    part.b = panel;
    part.b_inner = kWidth;
    part.y += column;
    if (part.bias != nullptr) part.bias += column;
    sum_rows<6, 2, false>(part, 0, 0, 0);
  }
  sum_panels<1>(p, column);
}

void layer_product_block(const LayerProduct& p) {
  constexpr int64_t kManyRows = 48;
  if (p.rows >= kManyRows && p.inner > 1) return sum_copied_panels(p);
  if (p.rows > 5) return sum_panels<2>(p, 0);
  if (p.rows > 1) return sum_panels<4>(p, 0);
  sum_panels<8>(p, 0);
}

/// Long chains in parts that go on from what is stored: the same roundings in the same order.
void layer_product(const LayerProduct& p) {
  if (p.inner <= kInnerBlock) return layer_product_block(p);
  for (int64_t k = 0; k < p.inner; k += kInnerBlock) {
    LayerProduct part = p;
    part.inner = p.inner - k < kInnerBlock ? p.inner - k : kInnerBlock;
    part.a += k * p.a_inner;
    part.b += k * p.b_inner;
    if (k > 0) {
      part.bias = nullptr;
      part.adds = true;
    }
    if (k + kInnerBlock < p.inner) part.finish = ProductFinish::none;
    layer_product_block(part);
  }
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
