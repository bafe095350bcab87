// Bringing the input of a block of output rows into the form a tile kernel reads; internal to the room.
#pragma once

#include "ulp/kernels/conv/conv_impl.h"
#include "ulp/kernels/conv/tile_kernel.h"

namespace ulp::kernels {

using CopyFn = void (*)(const void* x, void* staged, int64_t elements);

/// Copies input rows with their padding written out (and bytes widened, if the kernel wants that), or points
/// into the input where nothing has to change. Then every tap of every pixel is a fixed distance away: no
/// border cases.
class Staging {
 public:
  /// `reads_beyond`: the kernel may read up to 64 bytes behind the last element it needs. `spread`: it reads many pixels
  /// side by side, and those of a 1x1 layer must not lie in the same few lines of the first-level cache.
  Staging(const ConvConfig& config, DataType stage, CopyFn copy, bool reads_beyond, bool spread);

  /// Padding in the place of so many elements.
  void fill(uint8_t* to, int64_t elements) const;

  int64_t pixel_bytes() const { return pixel_bytes_; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t element_bytes() const { return element_bytes_; }
  bool copies() const { return copies_; }

  /// Bytes of buffer for that many output rows / for that many pixels of a flattened 1x1 layer; multiples
  /// of 64.
  int64_t bytes_for_rows(int64_t out_rows) const;
  int64_t bytes_for_pixels(int64_t pixels) const;

  /// The top left corner of the window of output pixel (first, 0); rows are row_bytes() apart.
  const uint8_t* rows(const void* x, int64_t image, int64_t first, int64_t end, uint8_t* buffer) const;
  /// The same for a 1x1 layer without stride and padding, whose pixels are one long row.
  const uint8_t* pixels(const void* x, int64_t first, int64_t end, uint8_t* buffer) const;

 private:
  void copy(const uint8_t* from, uint8_t* to, int64_t elements) const;

  ConvShape shape_;
  int64_t input_bytes_, element_bytes_, pixel_bytes_, row_bytes_;
  int64_t gap_bytes_ = 0;  ///< from the end of a pixel of a flattened 1x1 layer to the next one
  int32_t pad_value_;
  CopyFn copy_;
  bool copies_;
};

}  // namespace ulp::kernels
