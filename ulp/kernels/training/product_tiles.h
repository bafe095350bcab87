// Tiles of sums that stay in registers, for products of matrices. Included once by a file per instruction set, which gives its
// vectors as `ProductLanes` or as what ULP_TILE_LANES says; everything here has internal linkage.
#pragma once

#include "ulp/kernels/training/layer_product_ops.h"

#ifndef ULP_TILE_LANES
#define ULP_TILE_LANES ProductLanes
#endif

namespace ulp::kernels {
namespace {

using TileLanes = ULP_TILE_LANES;
using ProductVector = TileLanes::F;
constexpr int64_t kProductLanes = TileLanes::kLanes;

/// The last of `kVectors` vectors has n columns if kPartial.
template <bool kPartial>
inline __attribute__((always_inline)) ProductVector load_columns(const float* p, int64_t n) {
  if constexpr (kPartial) {
    return TileLanes::load_first(p, n);
  } else {
    return TileLanes::load(p);
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
      for (int v = 0; v < kVectors; ++v) sums[m][v] = TileLanes::max(TileLanes::set1(0.0F), sums[m][v]);
    }
    return;
  }
  const ProductVector slope = TileLanes::set1(p.slope);
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      sums[m][v] = TileLanes::max(TileLanes::mul(slope, sums[m][v]), sums[m][v]);
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
                                    : TileLanes::set1(0.0F);
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
      const ProductVector left = TileLanes::set1(a[m * a_row]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[m][v] = TileLanes::fma(left, right[v], sums[m][v]);
    }
  }
  finish_sums(p, sums);
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    float* to = p.y + (row + m) * p.y_row + column;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kPartial) {
        TileLanes::store_first(to, sums[m][v], n);
      } else {
        TileLanes::store(to + v * kProductLanes, sums[m][v]);
      }
    }
  }
}

/// All rows of a panel of columns from `row` on, kRows at a time, and then fewer.
template <int kRows, int kVectors, bool kPartial>
void sum_rows(const LayerProduct& p, int64_t row, int64_t column, int64_t n) {
  for (; row + kRows <= p.rows; row += kRows) sum_tile<kRows, kVectors, kPartial>(p, row, column, n);
  if constexpr (kRows > 1) {
    // Single vectors and large tiles have so many sizes that only halves are made.
    constexpr int kFewer = kVectors == 1 || kRows > 6 ? kRows / 2 : kRows - 1;
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

}  // namespace
}  // namespace ulp::kernels
