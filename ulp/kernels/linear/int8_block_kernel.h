// The contract between the driver of products with scales by blocks and its kernels (one instruction set a
// file). Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/formats/data_type.h"

namespace ulp::kernels {

/// Elements along each side of a block.
constexpr int64_t kScaleBlock = 32;

/// Some rows of one row of blocks by one column of blocks: 32 columns of the result.
struct Int8BlockTileArgs {
  const uint8_t* a;      ///< the first row, staged (linear/int8_pack.h)
  int64_t a_step;        ///< bytes from row to row
  const uint8_t* b;      ///< the first panel of the 32 columns
  int64_t b_panel;       ///< bytes from panel to panel
  const int32_t* start;  ///< what the sums of a block begin with: [block][32]
  int64_t blocks;        ///< along the sums
  const float* a_scale;  ///< one a block along the sums
  const float* b_scale;  ///< likewise
  const float* bias;     ///< [32]
  DataType output;       ///< f32 or bf16
  void* y;               ///< the first row and column
  int64_t y_step;        ///< elements from row to row
  int64_t columns;       ///< how many of the 32 exist
};

using Int8BlockTileFn = void (*)(const Int8BlockTileArgs&);

/// Rows of a tile.
constexpr int kMaxInt8BlockRows = 6;

struct Int8BlockKernels {
  int lanes;                                    ///< columns of a panel
  int unit;                                     ///< codes in 4 bytes
  Int8BlockTileFn tile[kMaxInt8BlockRows + 1];  ///< by its rows
  int32_t input_offset = 0;                     ///< as TileKernels has it
};

extern const Int8BlockKernels kInt8BlocksAvx2, kInt8BlocksAvx512, kInt8BlocksAvx512Vnni;
extern const Int8BlockKernels kInt8BlocksNeon, kInt8BlocksNeonDotprod, kInt8BlocksNeonI8mm;

}  // namespace ulp::kernels
