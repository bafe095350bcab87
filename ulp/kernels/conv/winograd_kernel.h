// The contract between the driver of Winograd's convolution (compiled for any machine) and its kernels (one
// instruction set a file). Plain data, see float_bits.h for why.
//
// Results of a 3x3 layer come in squares of 2 x 2, from patches of 4 x 4 pixels (Lavin and Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2016, F(2x2, 3x3)). A patch and the weights are brought into
// another form of 4 x 4 positions, where each channel of a patch is multiplied once at each position: 16
// products for four results, not 36.
#pragma once

#include "ulp/kernels/conv/tile_kernel.h"

namespace ulp::kernels {

constexpr int kWinogradPositions = 16;
constexpr int kWinogradPixels = 6;  ///< patches that are multiplied at a time

/// A patch of bytes -> its 16 positions as i16.
struct WinogradPatch {
  const uint8_t* pixels[kWinogradPositions];  ///< row by row
  int64_t channels;                           ///< a multiple of 16
  int16_t* to;                                ///< the first position
  int64_t position;                           ///< elements from one position to the next
};

/// The sums of a patch at 16 positions -> a square of results.
struct WinogradSquare {
  const int32_t* sums;    ///< two panels at the first position
  int64_t position;       ///< elements from one position to the next
  int64_t rows, columns;  ///< of the square that exist
  TileArgs row[2];        ///< what a tile of `columns` pixels needs behind its sums
};

struct WinogradKernels {
  const char* name;
  int lanes;
  void (*transform_input)(const WinogradPatch&);
  TileFn multiply[kWinogradPixels + 1];  ///< two panels of i16; stores i32 sums without bias
  void (*finish_output)(const WinogradSquare&);
};

extern const WinogradKernels kWinogradU8Avx2;

}  // namespace ulp::kernels
