// The contract between the driver of binary layers and the tile kernels, compiled for each instruction set. Plain data, see
// float_bits.h for why.
//
// A tile is M output pixels by NB panels of output channels. It counts the bits in which the pixels differ from the weights:
// dot = K - 2 * count. Pixels are equally spaced in memory, and so are the bytes of a tap.
//
// There are two ways to count. Kernels over words xor 64 inputs at a time and count bits; the driver brings each pixel's
// window into whole words first. Kernels over nibbles look up, for four inputs and all outputs of a panel at a time, how
// many bits differ: a byte of the input chooses the table, four bits of the weights the place in it.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/kernels/element.h"

namespace ulp::kernels {

constexpr int kMostBinaryRows = 8;
constexpr int kPanelOutputs = 16;  // of a panel of words, and of a part of a panel of nibbles
constexpr int kMostPanelOutputs = 32;

/// What becomes of the sums. Arrays reach to the end of the last panel.
struct BinaryFinish {
  const float* bias = nullptr;  ///< null: none
  float lo = 0, hi = 0;
  Activation curve = Activation::none;
  const int32_t* threshold = nullptr;  ///< null: f32 results
  const uint8_t* flip = nullptr;
};

/// How many bits differ, for each byte of the input: [16] for the weights' low four bits, [16] for the high ones.
struct BitCounts {
  alignas(64) uint8_t of[256][32];
};

struct BinaryTileArgs {
  const uint8_t* a;     ///< first pixel, before the offset of a tap
  int64_t a_step;       ///< bytes from pixel to pixel
  const int64_t* taps;  ///< byte offset of each tap; words have one
  int64_t tap_count, tap_bytes;
  /// Nibbles: [panel][byte][16 outputs at a time][low 16 bytes, high 16 bytes]; words: [panel][word][16 outputs].
  const uint8_t* b;
  int64_t b_panel;         ///< bytes of a panel
  const BitCounts* table;  ///< for nibbles
  const BinaryFinish* finish;
  int64_t channel, channels;              ///< the tile's first one, and how many there are from it on
  const int32_t* start[kMostBinaryRows];  ///< for each pixel K, or what it is at a border; of channel 0
  const float* scale[kMostBinaryRows];  ///< for each pixel; of channel 0; 16 behind the last one may be read
  uint8_t* y;                           ///< the first pixel and channel
  const float* residual;                ///< likewise, or null
  int64_t y_step;                       ///< floats, or bytes of bits, from pixel to pixel
};

using BinaryTileFn = void (*)(const BinaryTileArgs&);

struct BinaryKernels {
  const char* name;
  bool words;
  int outputs;                                ///< of a panel
  int most_rows[3];                           ///< for 1, 2 and 4 panels; 0: no such kernel
  BinaryTileFn tile[3][kMostBinaryRows + 1];  ///< [log2 of the panels][rows]
};

extern ULP_API const BinaryKernels kBinaryAvx512;  // tests run it where the next one takes its place
extern const BinaryKernels kBinaryPortable, kBinaryAvx2, kBinaryAvx512Vpopcntdq, kBinaryNeon;

}  // namespace ulp::kernels
