// The contract between the driver of bitmask layers and its kernels. Plain data, see float_bits.h for why.
//
// A panel is 16 outputs. Its weights are [4 inputs][16 outputs][4 bytes], as the tiles of dense layers have them; of each 64
// of them there is a mask, and of those under a bit the value.
#pragma once

#include <cstdint>

#include "ulp/kernels/conv/tile_kernel.h"

namespace ulp::kernels {

constexpr int kMaskOutputs = 16;
constexpr int kMaskInputs = 4;
constexpr int kMostMaskRows = 4;

struct BitmaskTileArgs {
  TileArgs out;           ///< finish, channel, channels, y, residual and y_step
  const uint8_t* a;       ///< rows of quads * 4 bytes
  int64_t a_step;         ///< bytes from row to row
  int64_t quads;          ///< groups of four inputs
  const uint64_t* masks;  ///< one for each of them: bit 4 o + i for output o and input i
  const int8_t* values;   ///< in the order of the bits; 64 bytes behind the last one may be read
};

using BitmaskTileFn = void (*)(const BitmaskTileArgs&);

struct BitmaskKernels {
  const char* name;
  BitmaskTileFn tile[kMostMaskRows + 1];  ///< [rows]
};

extern const BitmaskKernels kBitmaskPortable, kBitmaskAvx512Vbmi2;

}  // namespace ulp::kernels
