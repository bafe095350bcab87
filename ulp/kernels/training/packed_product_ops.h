// The table of products of packed matrices that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/training/layer_product_ops.h"

namespace ulp::kernels {

/// One side of a product as it lies in memory: the number of its row (or column) i and of the inner index k is
/// data[i * step + k * inner_step]. One of the steps is 1.
struct ProductSide {
  const float* data = nullptr;
  int64_t step = 0, inner_step = 1;
};

/// y(i, j) = finish(start + a(i, 0) b(0, j) + a(i, 1) b(1, j) + ...), as LayerProduct: one chain of multiply-adds from
/// the first to the last. Both sides are packed in words of 32 bits: a number in f32, or two in bf16, the first of
/// them in the upper half, as vdpbf16ps begins there. An inner size that is odd has a zero behind it.
struct PackedProduct {
  int64_t rows = 0, words = 0, columns = 0;
  const float* a = nullptr;  ///< word k of row i is a[i * a_row + k * a_inner]
  int64_t a_row = 0, a_inner = 1;
  const float* b = nullptr;  ///< panels of the columns, from pack_right: word k of the first panel, and so on
  int64_t panel_step = 0;    ///< words from one panel to the next
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_row = 0;
  bool adds = false;
  ProductFinish finish = ProductFinish::none;
  float slope = 0;
};

/// Numbers that are rounded to bf16 are rounded to nearest even; subnormal ones of bf16 become zero.
struct PackedProductOps {
  int64_t panel = 0;         ///< columns of a panel
  int64_t word_numbers = 1;  ///< numbers in a word
  /// Packs the inner indices [0, inner) of the panels [begin, end): words of panel p go to to + p * panel_step, `panel` of
  /// them for each word of the inner index, zeros where there is no column.
  void (*pack_right)(const ProductSide& from, int64_t inner, int64_t columns, int64_t begin, int64_t end,
                     float* to, int64_t panel_step);
  /// Packs rows and the inner indices [0, inner); word k of row i goes to to[i * row_step + k * word_step], of which one
  /// is 1 as in `from`. Null where sides are read as they lie.
  void (*pack_left)(const ProductSide& from, int64_t rows, int64_t inner, float* to, int64_t row_step,
                    int64_t word_step);
  void (*product)(const PackedProduct& product);
};

extern const PackedProductOps kPackedFloatsPortable, kPackedFloatsAvx2, kPackedFloatsAvx512;
/// Tables of numbers rounded to bf16, which lie in words of their own where there is no product of pairs.
extern const PackedProductOps kPackedBf16Portable, kPackedBf16Avx2, kPackedBf16Avx512, kPackedBf16Avx512Bf16;

}  // namespace ulp::kernels
