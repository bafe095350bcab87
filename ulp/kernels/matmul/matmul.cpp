#include "ulp/kernels/matmul/matmul.h"

#include <algorithm>

#include "ulp/kernels/common/aligned_buffer.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/elementwise/small_ops_table.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/matmul/matmul_ops.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const MatmulOps*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kMatmulOpsAvx512)},
                                                 {Isa::avx2, ULP_ON_X86(&kMatmulOpsAvx2)},
                                                 {Isa::neon, ULP_ON_ARM(&kMatmulOpsNeon)},
                                                 {Isa::portable, &kMatmulOpsPortable}};

constexpr int64_t kDepth = 256;    // of a block: its part of b stays in the second cache
constexpr int64_t kColumns = 256;  // likewise; a multiple of every panel's width
constexpr int64_t kRows = 96;      // of a that are laid out at a time; a multiple of every tile's rows

/// Floats of one worker: a block of b in panels, rows of a, and the sums of its columns where the result is no f32.
constexpr int64_t kOperands = kDepth * kColumns + kRows * kDepth;
int64_t worker_floats(const MatmulShape& shape) {
  const int64_t sums = shape.output.is_f32() ? 0 : shape.rows * std::min(kColumns, shape.columns);
  return round_up(kOperands + sums, 16);
}

/// Where the rows of a product go: floats in memory, or in scratch until a block of columns is whole.
class Result {
 public:
  Result(const MatmulShape& shape, void* y, float* scratch, Isa isa)
      : columns_(shape.columns),
        direct_(shape.output.is_f32()),
        y_(y),
        scratch_(scratch),
        output_("kernels.matmul", shape.output, isa) {}
  /// The same result from this row on.
  Result from(int64_t row) const {
    Result part = *this;
    part.first_ = row;
    return part;
  }
  float* block(int64_t column) const {
    return direct_ ? static_cast<float*>(y_) + first_ * columns_ + column : scratch_;
  }
  int64_t stride() const { return direct_ ? columns_ : std::min(kColumns, columns_); }
  /// A block of columns has its sums.
  void finish(int64_t column, int64_t rows, int64_t columns) const {
    for (int64_t r = 0; r < rows && !direct_; ++r) {
      output_.write(scratch_ + r * stride(), y_, (first_ + r) * columns_ + column, columns);
    }
  }

 private:
  int64_t columns_, first_ = 0;
  bool direct_;
  void* y_;
  float* scratch_;
  TypedRows output_;
};

/// A matrix from its first element on.
struct Matrix {
  const void* data;
  DataType type;
  int64_t row, column;

  float at(int64_t i) const {
    return type == DataType::bf16 ? bf16_to_float(static_cast<const uint16_t*>(data)[i])
                                  : static_cast<const float*>(data)[i];
  }
  Matrix from(int64_t offset) const {
    const auto* bytes = static_cast<const uint8_t*>(data) + offset * element_bytes(type);
    return {bytes, type, row, column};
  }
};

/// to[r][c] for `rows` and `columns` of the matrix, zeros up to `width`.
void lay_out(const Matrix& m, int64_t rows, int64_t columns, float* to, int64_t width,
             const SmallOps& small) {
  const bool f32 = m.type == DataType::f32;
  const float* from = static_cast<const float*>(m.data);
  for (int64_t r = 0; r < rows; ++r, to += width) {
    if (f32 && m.column == 1) {
      std::copy(from + r * m.row, from + r * m.row + columns, to);
    } else if (f32) {
      for (int64_t c = 0; c < columns; ++c) to[c] = from[r * m.row + c * m.column];
    } else if (m.column == 1) {
      small.bf16_to_f32(static_cast<const uint16_t*>(m.data) + r * m.row, to, columns);
    } else {
      for (int64_t c = 0; c < columns; ++c) to[c] = m.at(r * m.row + c * m.column);
    }
    std::fill(to + columns, to + width, 0.0F);
  }
}

/// c = a b for one pair of matrices; `rows` of a.
void multiply(const MatmulShape& shape, const Matrix& a, const Matrix& b, const Result& c, int64_t rows,
              float* scratch, const MatmulOps& ops, const SmallOps& small) {
  float* a_rows = scratch + kDepth * kColumns;
  // Few rows: b is read as it lies, where that is possible.
  const bool b_as_is = b.type == DataType::f32 && b.column == 1 && rows <= 12;
  const bool a_as_is = a.type == DataType::f32 && a.column == 1;
  for (int64_t first = 0; first < shape.columns; first += kColumns) {
    const int64_t columns = std::min(kColumns, shape.columns - first);
    for (int64_t k = 0; k < shape.inner; k += kDepth) {
      const int64_t depth = std::min(kDepth, shape.inner - k);
      for (int64_t p = 0; p < columns; p += ops.width) {
        const int64_t width = std::min(ops.width, columns - p);
        if (b_as_is && width == ops.width) continue;
        lay_out(b.from(k * b.row + (first + p) * b.column), depth, width, scratch + p * depth, ops.width,
                small);
      }
      for (int64_t row = 0; row < rows; row += kRows) {
        const int64_t count = std::min(kRows, rows - row);
        const Matrix part = a.from(row * a.row + k * a.column);
        if (!a_as_is) lay_out(part, count, depth, a_rows, depth, small);
        for (int64_t p = 0; p < columns; p += ops.width) {
          const int64_t width = std::min(ops.width, columns - p);
          const bool direct = b_as_is && width == ops.width;
          const auto* b_direct = static_cast<const float*>(b.data) + k * b.row + first + p;
          ops.panel({.a = a_as_is ? static_cast<const float*>(part.data) : a_rows,
                     .a_stride = a_as_is ? a.row : depth,
                     .b = direct ? b_direct : scratch + p * depth,
                     .b_stride = direct ? b.row : ops.width,
                     .c = c.block(first) + row * c.stride() + p,
                     .c_stride = c.stride(),
                     .rows = count,
                     .depth = depth,
                     .columns = width,
                     .adds = k > 0});
        }
      }
    }
    c.finish(first, rows, columns);
  }
}

}  // namespace

const MatmulOps& matmul_ops(Isa isa) {
  return *first_admitted(kTables, isa);
}

size_t matmul_workspace_bytes(const MatmulShape& shape, int workers) {
  return static_cast<size_t>(workers * worker_floats(shape)) * sizeof(float);
}

void matmul(const MatmulShape& shape, DataType a_type, const void* a, DataType b_type, const void* b, void* y,
            int64_t batch, void* workspace, Isa isa, const Parallel& parallel) {
  const MatmulOps& ops = matmul_ops(isa);
  int64_t products = batch;
  for (const MatmulDimension& d : shape.dimensions) products *= d.size;
  // Few products: their rows are shared out, too.
  int64_t parts = 1;
  if (products < 2 * parallel.workers()) {
    parts = std::max<int64_t>(1, std::min<int64_t>(2 * parallel.workers(), shape.rows / kRows));
  }
  const int64_t each = (shape.rows + parts - 1) / parts;
  // Small ones: several a task.
  const int64_t work = shape.rows * shape.inner * shape.columns / parts;
  const int64_t together = std::max<int64_t>(1, (int64_t{1} << 17) / std::max<int64_t>(1, work));
  const int64_t units = products * parts;
  parallel.run((units + together - 1) / together, [&](int64_t task, int worker) {
    float* scratch = static_cast<float*>(workspace) + worker * worker_floats(shape);
    const Result result(shape, y, scratch + kOperands, isa);
    for (int64_t u = task * together; u < std::min(units, (task + 1) * together); ++u) {
      const int64_t product = u / parts, row = u % parts * each;
      if (row >= shape.rows) continue;
      int64_t a_at = shape.a.offset, b_at = shape.b.offset, left = product;
      for (size_t d = shape.dimensions.size(); d-- > 0; left /= shape.dimensions[d].size) {
        a_at += left % shape.dimensions[d].size * shape.dimensions[d].a;
        b_at += left % shape.dimensions[d].size * shape.dimensions[d].b;
      }
      const Matrix left_side =
          Matrix{a, a_type, shape.a.row, shape.a.column}.from(a_at + left * shape.a.item + row * shape.a.row);
      const Matrix right_side =
          Matrix{b, b_type, shape.b.row, shape.b.column}.from(b_at + left * shape.b.item);
      multiply(shape, left_side, right_side, result.from(product * shape.rows + row),
               std::min(each, shape.rows - row), scratch, ops, small_ops(isa));
    }
  });
}

}  // namespace ulp::kernels
