#include "ulp/kernels/training/int8_quantizers.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/kernels/common/split.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/training/int8_ops.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const Int8Ops*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kInt8OpsAvx512)},
                                               {Isa::avx2, ULP_ON_X86(&kInt8OpsAvx2)},
                                               {Isa::portable, &kInt8OpsPortable}};

/// Rows and columns that are worked on at once: two blocks, a line of codes, a group of random numbers.
constexpr int64_t kTile = 64;
/// Columns whose scales are found together: neighbours in memory, which comes faster than piece by piece.
constexpr int64_t kStrip = 128;
static_assert(kTile % kInt8Block == 0 && kTile == formats::kRandomGroup);

constexpr int64_t pieces(int64_t n, int64_t each) {
  return (n + each - 1) / each;
}

float scale_of(uint32_t largest) {
  const float most = std::bit_cast<float>(largest);
  if (!(most <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::quiet_NaN();
  return most == 0 ? 1.0F : std::max(most / 127.0F, 0x1p-126F);
}

/// 0 for a scale that is NaN: its codes mean nothing, but are the same everywhere.
float inverse_of(float scale) {
  return scale == scale ? 1.0F / scale : 0.0F;
}

/// A part of the matrix: rows [row, row + rows), columns likewise.
struct Part {
  int64_t row, rows, column, columns;
};

class Quantizer {
 public:
  Quantizer(const FloatMatrix& matrix, Int8Scales scales, const Int8Target& target,
            const std::optional<formats::RandomKey>& key, const Int8Ops& ops)
      : m_(matrix),
        scales_(scales),
        target_(target),
        key_(key),
        ops_(ops),
        bf16_(matrix.type == DataType::bf16),
        block_columns_(pieces(matrix.columns, kInt8Block)) {}

  void run(const Parallel& parallel) const {
    if (scales_ == Int8Scales::tensor) one_scale(parallel);
    if (m_.rows == 0 || m_.columns == 0) return;
    if (scales_ == Int8Scales::columns) {
      return parallel.run(pieces(m_.columns, kStrip), [&](int64_t task, int) {
        const int64_t column = task * kStrip;
        strip_of_columns(column, std::min(kStrip, m_.columns - column));
      });
    }
    parallel.run(pieces(m_.rows, kTile), [&](int64_t task, int) {
      const int64_t row = task * kTile;
      strip_of_rows(row, std::min(kTile, m_.rows - row));
    });
  }

 private:
  const uint8_t* at(int64_t row, int64_t column) const {
    return static_cast<const uint8_t*>(m_.data) + (row * m_.columns + column) * (bf16_ ? 2 : 4);
  }

  void one_scale(const Parallel& parallel) const {
    std::atomic<uint32_t> most{0};
    split(m_.rows * m_.columns, parallel, [&](int64_t begin, int64_t count) {
      const uint32_t own = ops_.largest[bf16_](at(0, begin), count);
      uint32_t seen = most.load(std::memory_order_relaxed);
      while (seen < own && !most.compare_exchange_weak(seen, own, std::memory_order_relaxed)) {
      }
    });
    target_.scale[0] = scale_of(most);
  }

  /// Scales of a strip of columns and its codes, tile by tile.
  void strip_of_columns(int64_t column, int64_t columns) const {
    alignas(64) uint32_t most[kStrip] = {};
    for (int64_t r = 0; r < m_.rows; ++r) ops_.largest_each[bf16_](at(r, column), columns, most);
    alignas(64) float inverse[kStrip];
    for (int64_t c = 0; c < columns; ++c) {
      target_.scale[column + c] = scale_of(most[c]);
      inverse[c] = inverse_of(target_.scale[column + c]);
    }
    for (int64_t row = 0; row < m_.rows; row += kTile) {
      const int64_t rows = std::min(kTile, m_.rows - row);
      for (int64_t c = 0; c < columns; c += kTile)
        tile({row, rows, column + c, std::min(kTile, columns - c)}, inverse + c);
    }
  }

  void strip_of_rows(int64_t row, int64_t rows) const {
    if (scales_ == Int8Scales::rows) {
      for (int64_t r = row; r < row + rows; ++r)
        target_.scale[r] = scale_of(ops_.largest[bf16_](at(r, 0), m_.columns));
    }
    alignas(64) float inverse[kTile];
    if (scales_ == Int8Scales::tensor) std::fill_n(inverse, kTile, inverse_of(target_.scale[0]));
    if (scales_ == Int8Scales::rows) {
      for (int64_t r = 0; r < rows; ++r) inverse[r] = inverse_of(target_.scale[row + r]);
    }
    // Whole rows where nothing asks for tiles.
    const bool whole = target_.transposed == nullptr && !key_ && scales_ != Int8Scales::blocks;
    const int64_t width = whole ? m_.columns : kTile;
    for (int64_t column = 0; column < m_.columns; column += width) {
      const Part part{row, rows, column, std::min(width, m_.columns - column)};
      if (scales_ == Int8Scales::blocks) {
        blocks(part);
      } else {
        tile(part, inverse);
      }
    }
  }

  /// Up to four blocks of 32 x 32: each row of blocks is a tile with an inverse for each column.
  void blocks(const Part& part) const {
    for (int64_t row = part.row; row < part.row + part.rows; row += kInt8Block) {
      const int64_t rows = std::min(kInt8Block, part.row + part.rows - row);
      alignas(64) float inverse[kTile];
      for (int64_t c = 0; c < part.columns; c += kInt8Block) {
        const int64_t columns = std::min(kInt8Block, part.columns - c);
        uint32_t most = 0;
        for (int64_t r = row; r < row + rows; ++r)
          most = std::max(most, ops_.largest[bf16_](at(r, part.column + c), columns));
        float& scale = target_.scale[row / kInt8Block * block_columns_ + (part.column + c) / kInt8Block];
        scale = scale_of(most);
        std::fill_n(inverse + c, columns, inverse_of(scale));
      }
      tile({row, rows, part.column, part.columns}, inverse);
    }
  }

  /// Codes of up to 64 x 64 elements, or of whole rows; inverses of its rows, or of its columns.
  void tile(const Part& part, const float* inverse) const {
    const bool each = scales_ == Int8Scales::columns || scales_ == Int8Scales::blocks;
    alignas(64) int8_t buffer[kTile * kTile];
    int8_t* codes = buffer;
    int64_t step = kTile;
    if (target_.codes != nullptr) {
      codes = target_.codes + part.row * m_.columns + part.column;
      step = m_.columns;
    }
    for (int64_t r = 0; r < part.rows; ++r) {
      const void* x = at(part.row + r, part.column);
      const float* by = each ? inverse : inverse + r;
      if (key_) {
        alignas(64) uint32_t random[kTile];
        const int64_t group = (part.row + r) * pieces(m_.columns, kTile) + part.column / kTile;
        ops_.random(*key_, static_cast<uint64_t>(group), random);
        ops_.stochastic[bf16_][each](x, part.columns, by, random, codes + r * step);
      } else {
        ops_.nearest[bf16_][each](x, part.columns, by, codes + r * step);
      }
    }
    if (target_.transposed == nullptr) return;
    ops_.transpose(codes, step, part.rows, part.columns,
                   target_.transposed + part.column * m_.rows + part.row, m_.rows);
  }

  const FloatMatrix& m_;
  Int8Scales scales_;
  const Int8Target& target_;
  const std::optional<formats::RandomKey>& key_;
  const Int8Ops& ops_;
  bool bf16_;
  int64_t block_columns_;
};

}  // namespace

int64_t int8_scale_count(Int8Scales scales, int64_t rows, int64_t columns) {
  switch (scales) {
    case Int8Scales::rows:
      return rows;
    case Int8Scales::columns:
      return columns;
    case Int8Scales::tensor:
      return 1;
    case Int8Scales::blocks:
      break;
  }
  return pieces(rows, kInt8Block) * pieces(columns, kInt8Block);
}

void int8_quantize(const FloatMatrix& matrix, Int8Scales scales, const Int8Target& target,
                   const std::optional<formats::RandomKey>& key, Isa isa, const Parallel& parallel) {
  if (matrix.type != DataType::f32 && matrix.type != DataType::bf16) {
    fail("kernels.int8_quantize", "expected elements of f32 or bf16, got ", to_string(matrix.type));
  }
  const Int8Ops& ops = *first_admitted(kTables, isa);
  Quantizer(matrix, scales, target, key, ops).run(parallel);
}

void int8_transpose(const int8_t* from, int64_t rows, int64_t columns, int8_t* to, Isa isa,
                    const Parallel& parallel) {
  const Int8Ops& ops = *first_admitted(kTables, isa);
  parallel.run(pieces(columns, kTile), [&](int64_t task, int) {
    const int64_t column = task * kTile, count = std::min(kTile, columns - column);
    for (int64_t row = 0; row < rows; row += kTile) {
      ops.transpose(from + row * columns + column, columns, std::min(kTile, rows - row), count,
                    to + column * rows + row, rows);
    }
  });
}

}  // namespace ulp::kernels
