#include "ulp/kernels/layout.h"

#include <algorithm>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp::kernels {
namespace {

/// y[c][r] = x[r][c] in blocks, so that both sides stay in the first cache.
template <typename T>
void transpose(const T* x, T* y, int64_t rows, int64_t columns, int64_t row_begin, int64_t row_end) {
  constexpr int64_t kBlock = 32;
  for (int64_t r0 = row_begin; r0 < row_end; r0 += kBlock) {
    const int64_t r1 = std::min(row_end, r0 + kBlock);
    for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
      const int64_t c1 = std::min(columns, c0 + kBlock);
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
  constexpr int64_t kRows = 256;
  const int64_t blocks = (rows + kRows - 1) / kRows;
  parallel.run(batch * blocks, [&](int64_t task, int) {
    const int64_t image = task / blocks * rows * columns, begin = task % blocks * kRows;
    transpose(static_cast<const T*>(x) + image, static_cast<T*>(y) + image, rows, columns, begin,
              std::min(rows, begin + kRows));
  });
}

void dispatch(const char* where, int64_t element_size, const void* x, void* y, int64_t batch, int64_t rows,
              int64_t columns, const Parallel& parallel) {
  switch (element_size) {
    case 1:
      return transpose_batch<uint8_t>(x, y, batch, rows, columns, parallel);
    case 2:
      return transpose_batch<uint16_t>(x, y, batch, rows, columns, parallel);
    case 4:
      return transpose_batch<uint32_t>(x, y, batch, rows, columns, parallel);
    default:
      fail(where, "expected elements of 1, 2 or 4 bytes, got ", element_size);
  }
}

}  // namespace

void nchw_to_nhwc(int64_t element_size, const void* x, void* y, int64_t batch, int64_t channels,
                  int64_t pixels, const Parallel& parallel) {
  dispatch("kernels.nchw_to_nhwc", element_size, x, y, batch, channels, pixels, parallel);
}

void nhwc_to_nchw(int64_t element_size, const void* x, void* y, int64_t batch, int64_t channels,
                  int64_t pixels, const Parallel& parallel) {
  dispatch("kernels.nhwc_to_nchw", element_size, x, y, batch, pixels, channels, parallel);
}

void copy_channels(int64_t element_size, const void* x, void* y, int64_t rows, int64_t channels,
                   int64_t total_channels, int64_t offset, const Parallel& parallel) {
  const int64_t from_bytes = channels * element_size, to_bytes = total_channels * element_size;
  const uint8_t* from = static_cast<const uint8_t*>(x);
  uint8_t* to = static_cast<uint8_t*>(y) + offset * element_size;
  constexpr int64_t kRows = 256;
  parallel.run((rows + kRows - 1) / kRows, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * kRows);
    for (int64_t row = task * kRows; row < end; ++row) {
      std::memcpy(to + row * to_bytes, from + row * from_bytes, static_cast<size_t>(from_bytes));
    }
  });
}

}  // namespace ulp::kernels
