#include "ulp/kernels/elementwise/group_norm.h"

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/kernels/elementwise/row_ops.h"
#include "ulp/kernels/elementwise/rows.h"

namespace ulp::kernels {
namespace {

/// As many columns and rows as are worked on at once; numbers that lie in a row are taken as rows of so many columns.
constexpr int64_t kColumns = 64, kRows = 64;

/// Rows of numbers in memory: where the first begins, and from one to the next.
struct Rows {
  int64_t at, count, stride, columns;
};

/// A block of rows as floats.
struct Block {
  float* data;
  int64_t stride;
};

/// What all tasks read.
class Norm {
 public:
  Norm(const GroupNormShape& shape, const void* x, void* y, const float* weight, const float* bias,
       float epsilon, Isa isa)
      : shape(shape),
        weight_(weight),
        bias_(bias),
        epsilon_(epsilon),
        ops_(row_ops(isa)),
        direct_(shape.input.is_f32() && shape.output.is_f32()),
        input_("kernels.group_norm", shape.input, isa),
        output_("kernels.group_norm", shape.output, isa),
        x_(x),
        y_(y) {}

  const GroupNormShape& shape;

  int64_t width() const { return shape.channels / shape.groups; }
  double count() const { return static_cast<double>(width() * shape.pixels); }
  float factor(double squares) const {
    return 1.0F / std::sqrt(static_cast<float>(squares / count()) + epsilon_);
  }
  float weight_of(int64_t channel) const { return weight_ == nullptr ? 1.0F : weight_[channel]; }
  float bias_of(int64_t channel) const { return bias_ == nullptr ? 0.0F : bias_[channel]; }

  /// The sum of each column, or, around `mean`, of its squares.
  void sums(const Rows& rows, const float* mean, double* sums) const {
    std::fill_n(sums, rows.columns, 0.0);
    each_block(rows, [&](const Rows& part, const Block& block) {
      double own[kColumns];
      if (mean == nullptr) {
        ops_.column_sums(block.data, part.count, block.stride, part.columns, own);
      } else {
        ops_.column_squares(block.data, part.count, block.stride, part.columns, mean, own);
      }
      for (int64_t c = 0; c < part.columns; ++c) sums[c] += own[c];
    });
  }

  /// y = (x - mean) * factor + shift, with a number for each column.
  void normalize(const Rows& rows, const float* mean, const float* factor, const float* shift) const {
    each_block(rows, [&](const Rows& part, const Block& block) {
      float* to = direct_ ? static_cast<float*>(y_) + part.at : block.data;
      ops_.column_norm(block.data, part.count, block.stride, part.columns, mean, factor, shift, to);
      if (!direct_) write(part, to);
    });
  }

 private:
  template <typename F>
  void each_block(Rows rows, F f) const {
    alignas(64) float buffer[kRows * kColumns];
    const int64_t end = rows.at + rows.count * rows.stride, all = rows.count;
    for (int64_t done = 0; rows.at < end; done += rows.count, rows.at += rows.count * rows.stride) {
      rows.count = std::min(kRows, all - done);
      f(rows, read(rows, buffer));
    }
  }

  Block read(const Rows& rows, float* buffer) const {
    if (direct_) {  // column_norm writes elsewhere
      return {const_cast<float*>(static_cast<const float*>(x_)) + rows.at, rows.stride};
    }
    each_run(rows, [&](int64_t at, int64_t n, int64_t begin) {
      const float* from = input_.read(x_, at, n, buffer + begin);
      if (from != buffer + begin) std::copy_n(from, n, buffer + begin);
    });
    return {buffer, rows.columns};
  }

  void write(const Rows& rows, const float* made) const {
    each_run(rows, [&](int64_t at, int64_t n, int64_t begin) {
      if (shape.output.is_f32()) std::copy_n(made + begin, n, static_cast<float*>(y_) + at);
      output_.write(made + begin, y_, at, n);
    });
  }

  /// Calls f(element, count, place in the block) for runs of neighbours.
  template <typename F>
  static void each_run(const Rows& rows, F f) {
    if (rows.stride == rows.columns) return f(rows.at, rows.count * rows.columns, 0);
    for (int64_t r = 0; r < rows.count; ++r) f(rows.at + r * rows.stride, rows.columns, r * rows.columns);
  }

  const float* weight_;
  const float* bias_;
  float epsilon_;
  const RowOps& ops_;
  bool direct_;  ///< both sides are f32
  TypedRows input_, output_;
  const void* x_;
  void* y_;
};

/// Calls f(rows) for n numbers in a row from `at` on.
template <typename F>
void each_part(int64_t at, int64_t n, F f) {
  const int64_t rows = n / kColumns, rest = n % kColumns;
  if (rows > 0) f(Rows{at, rows, kColumns, kColumns});
  if (rest > 0) f(Rows{at + rows * kColumns, 1, rest, rest});
}

/// One group of an item whose pixels lie side by side; `at`: its first element.
void normalize_run(const Norm& norm, int64_t group, int64_t at) {
  const int64_t pixels = norm.shape.pixels, width = norm.width();
  double sums[kColumns], total = 0, squares = 0;
  each_part(at, width * pixels, [&](const Rows& rows) {
    norm.sums(rows, nullptr, sums);
    for (int64_t i = 0; i < rows.columns; ++i) total += sums[i];
  });
  float mean[kColumns], factor[kColumns], shift[kColumns];
  std::fill_n(mean, kColumns, static_cast<float>(total / norm.count()));
  each_part(at, width * pixels, [&](const Rows& rows) {
    norm.sums(rows, mean, sums);
    for (int64_t i = 0; i < rows.columns; ++i) squares += sums[i];
  });
  const float own = norm.factor(squares);
  for (int64_t c = 0; c < width; ++c) {
    std::fill_n(factor, kColumns, own * norm.weight_of(group * width + c));
    std::fill_n(shift, kColumns, norm.bias_of(group * width + c));
    each_part(at + c * pixels, pixels, [&](const Rows& rows) { norm.normalize(rows, mean, factor, shift); });
  }
}

/// Channels [begin, end) of an item that begins at `at` and whose channels lie side by side: one group, or several that
/// have kColumns channels at most.
void normalize_columns(const Norm& norm, int64_t begin, int64_t end, int64_t at) {
  const int64_t pixels = norm.shape.pixels, stride = norm.shape.channels, width = norm.width();
  const int64_t groups = (end - begin) / width;
  double sums[kColumns], totals[kColumns] = {}, squares[kColumns] = {};
  float means[kColumns], factors[kColumns];
  float mean[kColumns], factor[kColumns], shift[kColumns];  // of each column
  const auto columns_from = [&](int64_t c) {
    return Rows{at + c, pixels, stride, std::min(kColumns, end - c)};
  };
  for (int64_t c = begin; c < end; c += kColumns) {
    const Rows rows = columns_from(c);
    norm.sums(rows, nullptr, sums);
    for (int64_t i = 0; i < rows.columns; ++i) totals[(c + i - begin) / width] += sums[i];
  }
  for (int64_t g = 0; g < groups; ++g) means[g] = static_cast<float>(totals[g] / norm.count());
  for (int64_t c = begin; c < end; c += kColumns) {
    const Rows rows = columns_from(c);
    for (int64_t i = 0; i < rows.columns; ++i) mean[i] = means[(c + i - begin) / width];
    norm.sums(rows, mean, sums);
    for (int64_t i = 0; i < rows.columns; ++i) squares[(c + i - begin) / width] += sums[i];
  }
  for (int64_t g = 0; g < groups; ++g) factors[g] = norm.factor(squares[g]);
  for (int64_t c = begin; c < end; c += kColumns) {
    const Rows rows = columns_from(c);
    for (int64_t i = 0; i < rows.columns; ++i) {
      const int64_t group = (c + i - begin) / width;
      mean[i] = means[group];
      factor[i] = factors[group] * norm.weight_of(c + i);
      shift[i] = norm.bias_of(c + i);
    }
    norm.normalize(rows, mean, factor, shift);
  }
}

}  // namespace

void group_norm(const GroupNormShape& shape, int64_t items, const void* x, const float* weight,
                const float* bias, float epsilon, void* y, Isa isa, const Parallel& parallel) {
  if (shape.groups < 1 || shape.channels % shape.groups != 0) {
    fail("kernels.group_norm", "expected groups that divide the ", shape.channels, " channels, got ",
         shape.groups);
  }
  const Norm norm(shape, x, y, weight, bias, epsilon, isa);
  const int64_t width = norm.width(), item = shape.channels * shape.pixels;
  const int64_t groups_per_task = shape.channels_last ? std::max<int64_t>(1, kColumns / width) : 1;
  const int64_t tasks = (shape.groups + groups_per_task - 1) / groups_per_task;
  parallel.run(items * tasks, [&](int64_t task, int) {
    const int64_t begin = task % tasks * groups_per_task;
    const int64_t end = std::min(shape.groups, begin + groups_per_task);
    const int64_t at = task / tasks * item;
    if (shape.channels_last) {
      normalize_columns(norm, begin * width, end * width, at);
    } else {
      normalize_run(norm, begin, at + begin * width * shape.pixels);
    }
  });
}

}  // namespace ulp::kernels
