#include "ulp/kernels/image/layout.h"

#include <algorithm>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/kernels/common/split.h"
#include "ulp/kernels/elementwise/small_ops_table.h"

namespace ulp::kernels {
namespace {

struct Range {
  int64_t begin, end;
};

/// y[c][r] = x[r][c] in blocks, so that both sides stay in the first cache.
template <typename T>
void transpose(const T* x, T* y, int64_t rows, int64_t columns, Range of_rows, Range of_columns) {
  constexpr int64_t kBlock = 32;
  for (int64_t r0 = of_rows.begin; r0 < of_rows.end; r0 += kBlock) {
    const int64_t r1 = std::min(of_rows.end, r0 + kBlock);
    for (int64_t c0 = of_columns.begin; c0 < of_columns.end; c0 += kBlock) {
      const int64_t c1 = std::min(of_columns.end, c0 + kBlock);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) y[c * rows + r] = x[r * columns + c];
      }
    }
  }
}

template <typename T>
void transpose_batch(const void* x, void* y, int64_t batch, int64_t rows, int64_t columns,
                     const Parallel& parallel) {
  if (rows == 1 || columns == 1) {  // nothing moves: one channel, or one pixel
    std::memcpy(y, x, static_cast<size_t>(batch * rows * columns) * sizeof(T));
    return;
  }
  constexpr int64_t kRows = 256, kColumns = 4096;
  const int64_t down = (rows + kRows - 1) / kRows;
  const int64_t across =
      down > 1 ? 1 : (columns + kColumns - 1) / kColumns;  // few rows are cut the other way
  worth_sharing(batch * rows * columns, parallel).run(batch * down * across, [&](int64_t task, int) {
    const int64_t image = task / (down * across) * rows * columns, block = task % (down * across);
    const Range of_rows =
        down > 1 ? Range{block * kRows, std::min(rows, (block + 1) * kRows)} : Range{0, rows};
    const Range of_columns =
        down > 1 ? Range{0, columns} : Range{block * kColumns, std::min(columns, (block + 1) * kColumns)};
    transpose(static_cast<const T*>(x) + image, static_cast<T*>(y) + image, rows, columns, of_rows,
              of_columns);
  });
}

/// Images of three channels.
void interleave_batch(int64_t element_size, const void* x, void* y, int64_t batch, int64_t pixels,
                      const SmallOps& ops, const Parallel& parallel) {
  constexpr int64_t kPixels = 4096;
  const int64_t blocks = (pixels + kPixels - 1) / kPixels;
  worth_sharing(batch * 3 * pixels, parallel).run(batch * blocks, [&](int64_t task, int) {
    const int64_t image = task / blocks * 3 * pixels, first = task % blocks * kPixels;
    ops.interleave(element_size, static_cast<const uint8_t*>(x) + (image + first) * element_size, pixels,
                   static_cast<uint8_t*>(y) + (image + 3 * first) * element_size,
                   std::min(kPixels, pixels - first));
  });
}

constexpr int64_t kRowsOfTask = 256;

/// Calls body(begin, end) for pieces of [0, rows).
void each_rows(int64_t rows, int64_t columns, const Parallel& parallel,
               FunctionRef<void(int64_t, int64_t)> body) {
  worth_sharing(rows * columns, parallel).run((rows + kRowsOfTask - 1) / kRowsOfTask, [&](int64_t task, int) {
    body(task * kRowsOfTask, std::min(rows, (task + 1) * kRowsOfTask));
  });
}

/// Copies `bytes` of each row; rows of x and y start x_step and y_step bytes apart.
void copy_rows(const uint8_t* x, int64_t x_step, uint8_t* y, int64_t y_step, int64_t rows, int64_t bytes,
               const Parallel& parallel) {
  each_rows(rows, bytes, parallel, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(y + row * y_step, x + row * x_step, static_cast<size_t>(bytes));
    }
  });
}

/// The shuffle of two groups, in a form that the compiler vectorizes.
template <typename T>
void interleave(const T* __restrict a, const T* __restrict b, T* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    to[2 * i] = a[i];
    to[2 * i + 1] = b[i];
  }
}

template <typename T>
void shuffle_rows(const void* x, void* y, int64_t rows, int64_t channels, int64_t groups,
                  const Parallel& parallel) {
  const int64_t count = channels / groups;
  each_rows(rows, channels, parallel, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = static_cast<const T*>(x) + row * channels;
      T* to = static_cast<T*>(y) + row * channels;
      if (groups == 2) {
        interleave(from, from + count, to, count);
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t g = 0; g < groups; ++g) to[i * groups + g] = from[g * count + i];
      }
    }
  });
}

/// f(T()) for the unsigned type T of this size.
template <typename F>
void with_element(const char* where, int64_t element_size, F f) {
  switch (element_size) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      fail(where, "expected elements of 1, 2 or 4 bytes, got ", element_size);
  }
}

}  // namespace

void nchw_to_nhwc(int64_t element_size, const void* x, void* y, int64_t batch, int64_t channels,
                  int64_t pixels, Isa isa, const Parallel& parallel) {
  with_element("kernels.nchw_to_nhwc", element_size, [&]<typename T>(T) {
    if (channels == 3) return interleave_batch(sizeof(T), x, y, batch, pixels, small_ops(isa), parallel);
    transpose_batch<T>(x, y, batch, channels, pixels, parallel);
  });
}

void nhwc_to_nchw(int64_t element_size, const void* x, void* y, int64_t batch, int64_t channels,
                  int64_t pixels, const Parallel& parallel) {
  with_element("kernels.nhwc_to_nchw", element_size,
               [&]<typename T>(T) { transpose_batch<T>(x, y, batch, pixels, channels, parallel); });
}

void copy_channels(int64_t element_size, const void* x, void* y, int64_t rows, int64_t channels,
                   int64_t total_channels, int64_t offset, const Parallel& parallel) {
  copy_rows(static_cast<const uint8_t*>(x), channels * element_size,
            static_cast<uint8_t*>(y) + offset * element_size, total_channels * element_size, rows,
            channels * element_size, parallel);
}

void slice_channels(int64_t element_size, const void* x, void* y, int64_t rows, int64_t channels,
                    int64_t total_channels, int64_t offset, const Parallel& parallel) {
  copy_rows(static_cast<const uint8_t*>(x) + offset * element_size, total_channels * element_size,
            static_cast<uint8_t*>(y), channels * element_size, rows, channels * element_size, parallel);
}

void shuffle_channels(int64_t element_size, const void* x, void* y, int64_t rows, int64_t channels,
                      int64_t groups, const Parallel& parallel) {
  with_element("kernels.shuffle_channels", element_size,
               [&]<typename T>(T) { shuffle_rows<T>(x, y, rows, channels, groups, parallel); });
}

void depth_to_space(int64_t element_size, const DepthToSpaceShape& s, int64_t batch, const void* x, void* y,
                    const Parallel& parallel) {
  const int64_t part = s.channels * element_size, pixel = s.factor_h * s.factor_w * part;
  worth_sharing(batch * s.out_h * s.out_w * s.channels, parallel)
      .run(batch * s.out_h, [&](int64_t task, int) {
        const int64_t i = task % s.out_h;
        const uint8_t* line = static_cast<const uint8_t*>(x) +
                              (task / s.out_h * s.in_h + i / s.factor_h) * s.in_w * pixel +
                              i % s.factor_h * s.factor_w * part;
        uint8_t* to = static_cast<uint8_t*>(y) + task * s.out_w * part;
        // The parts of one pixel lie side by side in x and in y.
        for (int64_t j = 0; j < s.out_w; j += s.factor_w) {
          const int64_t parts = std::min(s.factor_w, s.out_w - j);
          std::memcpy(to + j * part, line + j / s.factor_w * pixel, static_cast<size_t>(parts * part));
        }
      });
}

}  // namespace ulp::kernels
