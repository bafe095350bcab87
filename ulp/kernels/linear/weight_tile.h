// A tile of a layer with coded weights, compiled for each instruction set. Plain data, see float_bits.h for
// why.
#pragma once

#include <cstdint>

#include "ulp/kernels/conv/finish.h"

namespace ulp::kernels {

constexpr int64_t kWeightLanes = 16;  // output channels of a panel
constexpr int64_t kCodesOfWord = 8;   // of 4 bits

/// Some rows and some panels of one layer.
struct WeightTileArgs {
  /// [row][group][input]: 8 bits: the inputs. 4 bits: in words of eight, input j < 7 of a word times 16^-j, as
  /// its code is used where it lies.
  const float* x = nullptr;
  int64_t x_stride = 0, x_group = 0;  ///< from row to row, from group to group
  /// [row][groups], of the inputs of a group; null for 8 bits where `zero` is.
  const float* negative_sums = nullptr;
  int64_t rows = 0;
  /// Of the first panel. 8 bits: s8 [in][16]. 4 bits: words [groups][ceil(group / 8)][16], the nibble j of a
  /// word belongs to weight 8 i + j of the group.
  const uint8_t* codes;
  int64_t panel_bytes;
  const float* scale;  ///< [panel][groups][16]
  const float* zero;   ///< likewise, less 8 for 4 bits; null: all are 0
  /// Likewise, of 4 bits where `zero` is null; then zero points are -8, which stands for 0. Null: none.
  const float* minimum;
  int64_t in, group, groups;
  const Finish* finish;
  int64_t channel, channels;  ///< the first one in the layer, and how many there are from it on
  float* y;                   ///< the first row and channel
  const float* residual;      ///< likewise, or null
  int64_t y_stride;
};

struct WeightKernel {
  /// Computes all rows of the channels that exist, in the order that weight_linear.h says of few rows.
  void (*tile)(const WeightTileArgs&);
  /// Writes the weights of the channels as the f32 tile kernels of this instruction set read them: [panel][in][lane].
  /// Null where there are none.
  void (*unpack)(const WeightTileArgs&, float* to);
};
struct WeightTiles {
  WeightKernel bits8, bits4;
};
extern const WeightTiles kWeightTilesPortable, kWeightTilesAvx2, kWeightTilesAvx512, kWeightTilesNeon;

}  // namespace ulp::kernels
