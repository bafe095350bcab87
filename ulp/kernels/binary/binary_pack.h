// Weights, scales and borders of binary layers in the order that the kernels read them; internal to the room.
#pragma once

#include <bit>
#include <vector>

#include "ulp/kernels/binary/binary_conv.h"
#include "ulp/kernels/binary/binary_kernel.h"
#include "ulp/kernels/common/aligned_buffer.h"

namespace ulp::kernels {

/// Throws ulp::Error where make_binary_conv() does, before anything is packed.
void check_binary(const BinaryConvConfig& config, const BinaryConvWeights& weights);

/// Bytes of a window: kernel_h * kernel_w * bit_bytes(in_channels).
int64_t window_bytes(const ConvShape& shape);

/// What kernels over nibbles look up.
constexpr BitCounts count_bits() {
  BitCounts counts{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned nibble = 0; nibble < 16; ++nibble) {
      counts.of[byte][nibble] = static_cast<uint8_t>(std::popcount((byte & 15U) ^ nibble));
      counts.of[byte][16 + nibble] = static_cast<uint8_t>(std::popcount((byte >> 4) ^ nibble));
    }
  }
  return counts;
}

/// The weights as BinaryTileArgs::b has them, zero where there are none.
AlignedBuffer pack_bits(const ConvShape& shape, const uint8_t* bits, const BinaryKernels& kernels);

/// A scale for each output element, [out_channels][pixels] -> [pixels][out_channels].
AlignedBuffer pack_scale_map(const ConvShape& shape, const float* scale);

/// What counts are taken from: K, or where pixels of zero lie in the window, K without the weights that they meet. The driver
/// pads with bits of 0, which count as +1.
class BinaryStart {
 public:
  /// `padded`: channels with those that fill the last panel.
  BinaryStart(const BinaryConvConfig& config, const uint8_t* bits, int64_t padded);
  /// Whether all pixels have the same.
  bool uniform() const { return rows_.ranges.size() * columns_.ranges.size() == 1; }
  /// [channel] of an output pixel.
  const int32_t* of(int64_t row, int64_t column) const {
    const int64_t kind =
        rows_.kind[static_cast<size_t>(row)] * columns_.count() + columns_.kind[static_cast<size_t>(column)];
    return numbers_.as<int32_t>() + kind * padded_;
  }

 private:
  /// Which taps of an axis lie in the image, for each place of the window: [begin, end), the same for neighbours.
  struct Axis {
    struct Range {
      int64_t begin, end;
      bool operator==(const Range&) const = default;
    };
    Axis(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, bool zero);
    int64_t count() const { return static_cast<int64_t>(ranges.size()); }
    std::vector<Range> ranges;
    std::vector<int64_t> kind;  ///< for each place its range
  };
  void fill(const ConvShape& shape, const uint8_t* bits);

  int64_t padded_;
  Axis rows_, columns_;
  AlignedBuffer numbers_;
};

}  // namespace ulp::kernels
