// The contract between the convolution drivers (compiled for any machine) and the tile kernels (one
// instruction set a file). Plain data, see float_bits.h for why.
//
// A tile is M output pixels by NB panels of `lanes` output channels. Its inputs are read in units of 4 bytes, one f32, two
// bf16, two i16 or four u8, or of 8 bytes. The pixels of a tile are equally spaced in memory, and so are the
// bytes of a tap: with an NHWC image and no dilation a whole kernel row is one tap, so that few input
// channels cost little.
#pragma once

#include <cstdint>

#include "ulp/kernels/conv/epilogue.h"

namespace ulp::kernels {

struct TileArgs {
  const uint8_t* a;     ///< first pixel, before the offset of a tap
  int64_t a_step;       ///< bytes from one output pixel's input to the next one's
  const int64_t* taps;  ///< byte offset of each tap
  int64_t tap_count, tap_units;
  const uint8_t* b;  ///< packed weights: [panel][tap][unit][lane][weight_unit_bytes()]
  int64_t b_panel;   ///< bytes of a panel
  const uint8_t* ahead =
      nullptr;       ///< what is fetched on the way: weights or input of the tiles behind this one
  bool far = false;  ///< all weights of the layer are more than the second-level cache holds
  const Finish* finish;
  int64_t channel;                   ///< the tile's first output channel
  int64_t channels;                  ///< how many of its channels exist
  void* y;                           ///< the first pixel and channel of the tile
  const void* residual;              ///< likewise, or null
  int64_t y_step;                    ///< elements from one output pixel to the next
  const float* row_scale = nullptr;  ///< dynamic layers: of the first pixel and those behind it
  const int32_t* row_zero = nullptr;
};

using TileFn = void (*)(const TileArgs&);

/// Bytes of TileArgs::ahead that a tile fetches on its way through its taps.
constexpr int64_t bytes_ahead(int64_t tap_count, int64_t tap_units) {
  return tap_count * (tap_units / 4) * 128;
}

constexpr int kMaxTilePixels = 14;

struct TileKernels {
  const char* name;
  DataType input;  ///< of the layer
  DataType stage;  ///< how the input must lie in memory: f32, bf16, u8 or i16
  int lanes;
  int unit;                                                     ///< input elements in a unit
  int max_pixels[3];                                            ///< for 1, 2 and 4 panels; 0: no such kernel
  TileFn tile[3][kMaxTilePixels + 1];                           ///< [log2 of the panels][pixels]
  void (*copy)(const void* x, void* staged, int64_t elements);  ///< null: bytes as they are
  int unit_bytes = 4;
  /// What the kernels take off each byte of the input, to multiply numbers with a sign: sums begin with as many times the
  /// sum of the weights.
  int32_t input_offset = 0;
  /// Weights are packed in half the bytes of a staged input, as bf16 or i8, and widened as they are read.
  bool narrow = false;
  /// Tiles for weights as wide as the input, where panels are widened once for many pixels. They have the lanes, unit and stage
  /// of these. Null: weights are widened as they are read, of however many pixels.
  const TileKernels* wide = nullptr;
  /// So many weights for `wide`, a multiple of the lanes.
  void (*widen)(const uint8_t* packed, uint8_t* wide, int64_t weights) = nullptr;

  DataType weight_type() const {
    if (narrow) return stage == DataType::i16 ? DataType::i8 : DataType::bf16;
    return stage == DataType::u8 ? DataType::i8 : stage;  // bytes without sign meet codes with one
  }
  int weight_unit_bytes() const { return narrow ? unit_bytes / 2 : unit_bytes; }
};

/// A run of output pixels of one row, all channels. Weights: [tap][padded channel] as f32 or i32.
struct DepthwiseArgs {
  const uint8_t* a;
  int64_t a_step;
  const int64_t* taps;
  int64_t tap_count;
  int64_t kernel_w;      ///< taps of a row
  int64_t column_bytes;  ///< from tap to tap of a row where they are neighbours; 0: they are further apart
  const void* weights;
  int64_t weight_step;  ///< elements from one tap to the next
  const Finish* finish;
  int64_t channels, pixels;
  void* y;
  const void* residual;
};

using DepthwiseFn = void (*)(const DepthwiseArgs&);

struct DepthwiseKernels {
  const char* name;
  int lanes;
  DepthwiseFn f32, bf16, u8;
};

extern const TileKernels kTilesF32Avx2, kTilesBf16Avx2, kTilesU8Avx2;
extern const TileKernels kTilesF32Avx512, kTilesBf16Avx512, kTilesU8Avx512;
extern const TileKernels kTilesU8Avx512Vnni, kTilesBf16Avx512Bf16;
extern const TileKernels kTilesF32Neon, kTilesBf16Neon, kTilesU8Neon;
extern const TileKernels kTilesU8NeonDotprod, kTilesU8NeonI8mm;
extern const TileKernels kTilesBf16NeonBf16, kTilesBf16NeonMatrix;  ///< the second: units of four
extern const DepthwiseKernels kDepthwiseAvx2, kDepthwiseAvx512, kDepthwiseNeon;
extern const DepthwiseKernels kDepthwiseAvx512Bf16;  ///< of bf16 alone: rounds to it in one instruction

/// How the weights of a DepthwiseBytes lie.
enum class DepthwisePacking : uint8_t {
  /// i8 [64 channels][tap][q][64 bytes], where only byte 4 i + q is not zero and belongs to channel 4 i + q; bias and
  /// multipliers of 64 channels in the order [q][i].
  quads,
  /// i16 [16 channels][two rows of the window][column][channel][row], 0 where there is no second row. The last block ends
  /// with the last channel: it may begin inside the one before it.
  row_pairs
};

/// u8 -> u8 with no residual or one of u8.
struct DepthwiseBytes {
  const char* name;  ///< behind that of the other kernels
  DepthwiseFn run;
  DepthwisePacking packing;
  int64_t least_channels;
};
extern const DepthwiseBytes kDepthwiseBytesAvx2, kDepthwiseBytesAvx512Vnni;

}  // namespace ulp::kernels
