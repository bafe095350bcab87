// The contract between the driver of block-sparse layers (compiled for any machine) and its kernels (one instruction set
// a file). Plain data, see float_bits.h for why.
//
// A tile is M rows by up to four panels of 16 outputs. A block is 16 outputs by kUnits units of 4 bytes of input, as
// tile_kernel.h has them, for each unit [16 outputs][4 bytes].
#pragma once

#include <cstdint>

#include "ulp/kernels/conv/tile_kernel.h"

namespace ulp::kernels {

constexpr int kBlockOutputs = 16;
constexpr int kMostBlockRows =
    16;  ///< of a tile; with more, an interleaved block's inputs are more than one line
/// Up to so many rows are read where they lie; more come interleaved: [unit][row][4 bytes], so that a block's inputs are
/// one line of the cache.
constexpr int kRowsApart = 4;

struct BlockTileArgs {
  TileArgs out;           ///< finish, channel, channels, y, residual and y_step
  const uint8_t* a;       ///< the rows, apart or interleaved
  int64_t a_step;         ///< bytes from row to row where they are apart
  const int64_t* begin;   ///< panel p of the tile has the blocks begin[p] to begin[p + 1]
  const uint16_t* index;  ///< of all blocks: where along the inputs, in blocks; rises within a panel
  const uint8_t* values;  ///< of all blocks
};

using BlockTileFn = void (*)(const BlockTileArgs&);

struct BlockKernels {
  const char* name;
  DataType input;                           ///< of the layer
  DataType stage;                           ///< how rows must lie in memory: f32, u8 or i16
  int unit, units;                          ///< input elements in 4 bytes, and such units in a block
  int max_rows[3];                          ///< for 1, 2 and 4 panels; 0: no such kernel
  BlockTileFn tile[3][kMostBlockRows + 1];  ///< [log2 of the panels][rows]
  void (*copy)(const void* x, void* staged, int64_t elements);  ///< null: bytes as they are
  /// Rows of `units` units, `step` bytes apart -> [unit][row][4 bytes].
  void (*interleave)(const uint8_t* rows, int64_t step, int64_t count, int64_t units, uint8_t* to);
  int32_t input_offset = 0;  ///< as TileKernels has it
};

extern const BlockKernels kBlocksU8Portable, kBlocksF32Portable, kBlocksBf16Portable;
extern const BlockKernels kBlocksU8Avx2, kBlocksF32Avx2, kBlocksBf16Avx2;
extern const BlockKernels kBlocksU8Avx512, kBlocksF32Avx512, kBlocksBf16Avx512;
extern const BlockKernels kBlocksU8Avx512Vnni;
extern const BlockKernels kBlocksU8Neon, kBlocksF32Neon, kBlocksBf16Neon;
extern const BlockKernels kBlocksU8NeonDotprod, kBlocksU8NeonI8mm;

}  // namespace ulp::kernels
