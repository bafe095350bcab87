#include "ulp/kernels/elementwise/group_norm.h"

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/kernels/elementwise/row_ops.h"
#include "ulp/kernels/elementwise/rows.h"

namespace ulp::kernels {
namespace {

/// As many columns as are worked on at once; numbers that lie in a row are taken as rows of so many columns.
constexpr int64_t kColumns = 64;

/// What all tasks read.
struct Norm {
  const GroupNormShape& shape;
  const float* weight;
  const float* bias;
  float epsilon;
  const RowOps& ops;

  int64_t width() const { return shape.channels / shape.groups; }
  double count() const { return static_cast<double>(width() * shape.pixels); }
  float factor(double squares) const {
    return 1.0F / std::sqrt(static_cast<float>(squares / count()) + epsilon);
  }
  float weight_of(int64_t channel) const { return weight == nullptr ? 1.0F : weight[channel]; }
  float bias_of(int64_t channel) const { return bias == nullptr ? 0.0F : bias[channel]; }
};

/// Calls f(offset, rows, columns) for n numbers in a row.
template <typename F>
void each_part(int64_t n, F f) {
  const int64_t rows = n / kColumns, rest = n % kColumns;
  if (rows > 0) f(0, rows, kColumns);
  if (rest > 0) f(rows * kColumns, 1, rest);
}

/// One group of an item whose pixels lie side by side.
void normalize_run(const Norm& norm, int64_t group, const float* x, float* y) {
  const RowOps& ops = norm.ops;
  const int64_t pixels = norm.shape.pixels, width = norm.width();
  double sums[kColumns], total = 0, squares = 0;
  each_part(width * pixels, [&](int64_t at, int64_t rows, int64_t columns) {
    ops.column_sums(x + at, rows, kColumns, columns, sums);
    for (int64_t i = 0; i < columns; ++i) total += sums[i];
  });
  float mean[kColumns], factor[kColumns], shift[kColumns];
  std::fill_n(mean, kColumns, static_cast<float>(total / norm.count()));
  each_part(width * pixels, [&](int64_t at, int64_t rows, int64_t columns) {
    ops.column_squares(x + at, rows, kColumns, columns, mean, sums);
    for (int64_t i = 0; i < columns; ++i) squares += sums[i];
  });
  const float own = norm.factor(squares);
  for (int64_t c = 0; c < width; ++c) {
    std::fill_n(factor, kColumns, own * norm.weight_of(group * width + c));
    std::fill_n(shift, kColumns, norm.bias_of(group * width + c));
    each_part(pixels, [&](int64_t at, int64_t rows, int64_t columns) {
      const int64_t i = c * pixels + at;
      ops.column_norm(x + i, rows, kColumns, columns, mean, factor, shift, y + i);
    });
  }
}

/// Channels [begin, end) of an item whose channels lie side by side: one group, or several that have kColumns
/// channels at most.
void normalize_columns(const Norm& norm, int64_t begin, int64_t end, const float* x, float* y) {
  const RowOps& ops = norm.ops;
  const int64_t pixels = norm.shape.pixels, stride = norm.shape.channels, width = norm.width();
  const int64_t groups = (end - begin) / width;
  double sums[kColumns], totals[kColumns] = {}, squares[kColumns] = {};
  float means[kColumns], factors[kColumns];
  float mean[kColumns], factor[kColumns], shift[kColumns];  // of each column
  for (int64_t c = begin; c < end; c += kColumns) {
    const int64_t columns = std::min(kColumns, end - c);
    ops.column_sums(x + c, pixels, stride, columns, sums);
    for (int64_t i = 0; i < columns; ++i) totals[(c + i - begin) / width] += sums[i];
  }
  for (int64_t g = 0; g < groups; ++g) means[g] = static_cast<float>(totals[g] / norm.count());
  for (int64_t c = begin; c < end; c += kColumns) {
    const int64_t columns = std::min(kColumns, end - c);
    for (int64_t i = 0; i < columns; ++i) mean[i] = means[(c + i - begin) / width];
    ops.column_squares(x + c, pixels, stride, columns, mean, sums);
    for (int64_t i = 0; i < columns; ++i) squares[(c + i - begin) / width] += sums[i];
  }
  for (int64_t g = 0; g < groups; ++g) factors[g] = norm.factor(squares[g]);
  for (int64_t c = begin; c < end; c += kColumns) {
    const int64_t columns = std::min(kColumns, end - c);
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t group = (c + i - begin) / width;
      mean[i] = means[group];
      factor[i] = factors[group] * norm.weight_of(c + i);
      shift[i] = norm.bias_of(c + i);
    }
    ops.column_norm(x + c, pixels, stride, columns, mean, factor, shift, y + c);
  }
}

}  // namespace

void group_norm(const GroupNormShape& shape, int64_t items, const float* x, const float* weight,
                const float* bias, float epsilon, float* y, Isa isa, const Parallel& parallel) {
  if (shape.groups < 1 || shape.channels % shape.groups != 0) {
    fail("kernels.group_norm", "expected groups that divide the ", shape.channels, " channels, got ",
         shape.groups);
  }
  const Norm norm{shape, weight, bias, epsilon, row_ops(isa)};
  const int64_t width = norm.width(), item = shape.channels * shape.pixels;
  const int64_t groups_per_task = shape.channels_last ? std::max<int64_t>(1, kColumns / width) : 1;
  const int64_t tasks = (shape.groups + groups_per_task - 1) / groups_per_task;
  parallel.run(items * tasks, [&](int64_t task, int) {
    const int64_t begin = task % tasks * groups_per_task;
    const int64_t end = std::min(shape.groups, begin + groups_per_task);
    const int64_t at = task / tasks * item;
    if (shape.channels_last) {
      normalize_columns(norm, begin * width, end * width, x + at, y + at);
    } else {
      normalize_run(norm, begin, x + at + begin * width * shape.pixels,
                    y + at + begin * width * shape.pixels);
    }
  });
}

}  // namespace ulp::kernels
