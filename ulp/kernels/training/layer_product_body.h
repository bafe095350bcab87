// Products of matrices as they lie. Included once by a file per instruction set, which gives its vectors as
// `ProductLanes` and names its table with ULP_LAYER_PRODUCT_OPS; everything here has internal linkage.
#include "ulp/kernels/training/product_tiles.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kInnerBlock = 2048 / kProductLanes;  ///< of a panel of two vectors: 16 KiB

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
