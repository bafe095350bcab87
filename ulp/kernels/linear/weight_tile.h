// A tile of a layer with coded weights, compiled for each instruction set. Plain data, see float_bits.h for
// why.
#pragma once

#include <cstdint>

#include "ulp/kernels/conv/epilogue.h"

namespace ulp::kernels {

constexpr int64_t kWeightLanes = 16;  // output channels of a panel
constexpr int64_t kCodesOfWord = 8;   // of 4 bits

/// Inputs of 4-bit codes are fixed point within a group, with so many digits of base 256, of -128 to 127.
constexpr int64_t kDigits = 3;
/// Of the inputs of a word of codes, four digits each: the lowest digit of inputs 0, 2, 4 and 6, the next one, the
/// highest one; then those of inputs 1, 3, 5 and 7. They meet the low and the high halves of the word's bytes.
constexpr int64_t kDigitWords = 2 * kDigits;

struct DigitGroup {
  int32_t start[kDigits];  ///< of the sums of digits times codes, the lowest first
  float unit;              ///< what 1 in the lowest digit stands for; NaN where an input is not finite
};

/// Some rows and some panels of one layer.
struct WeightTileArgs {
  const float* x = nullptr;            ///< 8 bits: [row][group][input]
  const int32_t* digits = nullptr;     ///< 4 bits: [row][group][word][kDigitWords]
  int64_t x_stride = 0, x_group = 0;   ///< of either, from row to row, from group to group
  const DigitGroup* starts = nullptr;  ///< 4 bits: [row][groups]
  /// [row][groups], of the inputs of a group; where `zero` or `minimum` is.
  const float* negative_sums = nullptr;
  int64_t rows = 0;
  /// Of the first panel. 8 bits: s8 [in][16]. 4 bits: words [groups][ceil(group / 8)][16], the nibble j of a
  /// word belongs to weight 8 i + j of the group.
  const uint8_t* codes;
  int64_t panel_bytes;
  const float* scale;  ///< [panel][groups][16]
  const float* zero;   ///< likewise, less 8 for 4 bits; null: all are 0
  /// Likewise, of 4 bits where `zero` is null; then codes stand for themselves, and not for 8 less. Null: none.
  const float* minimum;
  int64_t in, group, groups;
  const Finish* finish;
  int64_t channel, channels;  ///< the first one in the layer, and how many there are from it on
  float* y;                   ///< the first row and channel
  const float* residual;      ///< likewise, or null
  int64_t y_stride;
};

/// Computes all rows of the channels that exist, in the order that weight_linear.h says of few rows.
using WeightTile = void (*)(const WeightTileArgs&);
/// Writes the weights of the channels as the f32 tile kernels of this instruction set read them: [panel][in][lane].
using WeightUnpack = void (*)(const WeightTileArgs&, float* to);

struct WeightTiles {
  WeightTile tile8;
  WeightUnpack unpack8, unpack4;  ///< null where there are no f32 tile kernels
};
extern const WeightTiles kWeightTilesPortable, kWeightTilesAvx2, kWeightTilesAvx512, kWeightTilesNeon;

/// WeightTile of 4 bits. All have the same bits.
void digit_tile_portable(const WeightTileArgs& t);
void digit_tile_avx2(const WeightTileArgs& t);
void digit_tile_avx512(const WeightTileArgs& t);
void digit_tile_avx512_vnni(const WeightTileArgs& t);
void digit_tile_neon(const WeightTileArgs& t);
void digit_tile_neon_dotprod(const WeightTileArgs& t);

}  // namespace ulp::kernels
