// The table of products of small matrices that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

namespace ulp::kernels {

/// What a product does with its sums before it stores them; a NaN passes.
enum class ProductFinish : uint8_t {
  none,
  relu,        ///< max(0, sum)
  leaky_relu,  ///< max(slope sum, sum), for 0 < slope <= 1
};

/// y(i, j) = finish(start + a(i, 0) b(0, j) + a(i, 1) b(1, j) + ...): one chain of multiply-adds with one rounding
/// each, from the first to the last, whatever the sizes are: every instruction set gives the same bits, and a
/// row's do not depend on the others.
struct LayerProduct {
  int64_t rows = 0, inner = 0, columns = 0;
  const float* a = nullptr;  ///< a(i, k) = a[i * a_row + k * a_inner]
  int64_t a_row = 0, a_inner = 1;
  const float* b = nullptr;  ///< b(k, j) = b[k * b_inner + j]; nothing behind its columns is read
  int64_t b_inner = 0;
  const float* bias = nullptr;  ///< start: bias[j]; null: 0
  float* y = nullptr;           ///< y(i, j) = y[i * y_row + j]; nothing behind its columns is written
  int64_t y_row = 0;
  bool adds = false;  ///< start: y(i, j), without a bias
  ProductFinish finish = ProductFinish::none;
  float slope = 0;
};

struct LayerProductOps {
  void (*product)(const LayerProduct& product);
  /// to[c * to_step + r] = from[r * columns + c].
  void (*transpose)(const float* from, int64_t rows, int64_t columns, float* to, int64_t to_step);
};

extern const LayerProductOps kLayerProductOpsPortable, kLayerProductOpsAvx2, kLayerProductOpsAvx512;

}  // namespace ulp::kernels
