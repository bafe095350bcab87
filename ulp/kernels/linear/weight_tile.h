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
  const float* x;
  int64_t x_stride, rows;
  /// Of the first panel. 8 bits: s8 [in][16]. 4 bits: words [groups][ceil(group / 8)][16], the nibble j of a word belongs
  /// to weight 8 i + j of the group, has a sign and is the code less 8.
  const uint8_t* codes;
  int64_t panel_bytes;
  const float* scale;  ///< [panel][groups][16]
  const float* zero;   ///< likewise, less 8 for 4 bits; null: all are 0
  bool usual_scales;  ///< each is in [2^-90, 2^100]: powers of two can be taken in and out without a rounding
  int64_t in, group, groups;
  const Finish* finish;
  int64_t channel, channels;  ///< the first one in the layer, and how many there are from it on
  float* y;                   ///< the first row and channel
  const float* residual;      ///< likewise, or null
  int64_t y_stride;
};

struct WeightKernel {
  /// Computes all rows of the channels that exist. Sums begin with the bias and are in the order of the inputs.
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
