// Packing and products of packed matrices. Included by a file per instruction set and type, which gives its vectors as
// `ProductLanes`, the type of the words as `PackedWords`, and names its table with ULP_PACKED_PRODUCT_OPS; everything here has
// internal linkage.
#include "ulp/kernels/training/packed_product_ops.h"
#include "ulp/kernels/training/product_tiles.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kPanel = 2 * kProductLanes;
constexpr int64_t kPackedBlock = 4096 / kProductLanes;  ///< words of a panel: 32 KiB
constexpr int64_t kNumbers = PackedWords::kNumbers;

/// Word w of the number i from `from`, of which `left` inner indices are there.
inline uint32_t word_at(const float* from, int64_t inner_step, int64_t left) {
  const uint32_t first = PackedWords::bits(from[0]);
  if constexpr (kNumbers == 1) {
    return first;
  } else {
    return PackedWords::pair(first, left > 1 ? PackedWords::bits(from[inner_step]) : 0U);
  }
}

/// Rows or columns lie side by side: to[w * word_step + i] for i < n.
void pack_across(const ProductSide& from, int64_t n, int64_t inner, float* to, int64_t word_step) {
  auto* words = reinterpret_cast<PackedWords::Word*>(to);
  for (int64_t k = 0; k < inner; k += kNumbers, words += word_step) {
    const float* row = from.data + k * from.inner_step;
    if constexpr (kNumbers == 1) {
      for (int64_t i = 0; i < n; ++i) words[i] = PackedWords::bits(row[i]);
    } else if (k + 1 < inner) {
      const float* next = row + from.inner_step;
      for (int64_t i = 0; i < n; ++i)
        words[i] = PackedWords::pair(PackedWords::bits(row[i]), PackedWords::bits(next[i]));
    } else {
      for (int64_t i = 0; i < n; ++i) words[i] = PackedWords::pair(PackedWords::bits(row[i]), 0U);
    }
  }
}

/// Inner indices lie side by side: to[i * row_step + w * word_step].
void pack_along(const ProductSide& from, int64_t n, int64_t inner, float* to, int64_t row_step,
                int64_t word_step) {
  auto* words = reinterpret_cast<PackedWords::Word*>(to);
  const int64_t whole = inner / kNumbers;
  for (int64_t i = 0; i < n; ++i, words += row_step) {
    const float* row = from.data + i * from.step;
    if (word_step == 1) {
      for (int64_t w = 0; w < whole; ++w) words[w] = word_at(row + w * kNumbers, 1, kNumbers);
    } else {
      for (int64_t w = 0; w < whole; ++w) words[w * word_step] = word_at(row + w * kNumbers, 1, kNumbers);
    }
    if (whole * kNumbers < inner) words[whole * word_step] = word_at(row + whole * kNumbers, 1, 1);
  }
}

void pack_right_side(const ProductSide& from, int64_t inner, int64_t columns, int64_t begin, int64_t end,
                     float* to, int64_t panel_step) {
  const int64_t words = (inner + kNumbers - 1) / kNumbers;
  for (int64_t p = begin; p < end; ++p) {
    float* panel = to + p * panel_step;
    const int64_t n = columns - p * kPanel < kPanel ? columns - p * kPanel : kPanel;
    if (n < kPanel) {
      for (int64_t i = 0; i < words * kPanel; ++i) panel[i] = 0.0F;
    }
    ProductSide part = from;
    part.data += p * kPanel * from.step;
    if (from.step == 1) {
      pack_across(part, n, inner, panel, kPanel);
    } else {
      pack_along(part, n, inner, panel, 1, kPanel);
    }
  }
}

void pack_left_side(const ProductSide& from, int64_t rows, int64_t inner, float* to, int64_t row_step,
                    int64_t word_step) {
  if (from.inner_step == 1) return pack_along(from, rows, inner, to, row_step, word_step);
  pack_across(from, rows, inner, to, word_step);
}

void packed_product(const PackedProduct& p) {
  constexpr int kTileRows = kProductLanes == 16 ? 12 : 6;
  for (int64_t k = 0; k < p.words; k += kPackedBlock) {
    const bool last = k + kPackedBlock >= p.words;
    for (int64_t column = 0; column < p.columns; column += kPanel) {
      LayerProduct part{.rows = p.rows,
                        .inner = last ? p.words - k : kPackedBlock,
                        .columns = p.columns - column < kPanel ? p.columns - column : kPanel,
                        .a = p.a + k * p.a_inner,
                        .a_row = p.a_row,
                        .a_inner = p.a_inner,
                        .b = p.b + column / kPanel * p.panel_step + k * kPanel,
                        .b_inner = kPanel,
                        .bias = k == 0 && p.bias != nullptr ? p.bias + column : nullptr,
                        .y = p.y + column,
                        .y_row = p.y_row,
                        .adds = p.adds || k > 0,
                        .finish = last ? p.finish : ProductFinish::none,
                        .slope = p.slope};
      if (part.columns == kPanel) {
        sum_rows<kTileRows, 2, false>(part, 0, 0, 0);
      } else {
        sum_panels<1>(part, 0);
      }
    }
  }
}

}  // namespace

extern const PackedProductOps ULP_PACKED_PRODUCT_OPS;
const PackedProductOps ULP_PACKED_PRODUCT_OPS = {
    kPanel, kNumbers, pack_right_side, PackedWords::kRounds ? pack_left_side : nullptr, packed_product};

}  // namespace ulp::kernels
