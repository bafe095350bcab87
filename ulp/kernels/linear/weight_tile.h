// A tile of a layer with coded weights, compiled for each instruction set. Plain data, see float_bits.h for
// why.
#pragma once

#include <cstdint>

#include "ulp/kernels/element.h"

namespace ulp::kernels {

constexpr int64_t kWeightLanes = 16;  // output channels of a panel

struct WeightTileArgs {
  const float* x;
  int64_t x_stride, rows;
  const uint8_t* codes;  ///< of one panel: 8 bits [in][16], 4 bits [in / 2][16]
  const float* scale;    ///< [groups][16]
  const float* zero;     ///< [groups][16]
  int64_t in, group;
  const float* bias;      ///< [16]
  const float* residual;  ///< the panel's first channel of the first row, or null
  float* y;
  int64_t y_stride, channels;  ///< how many of the channels exist
  float lo, hi;
  Activation curve;  ///< applied last, or none
};

using WeightTileFn = void (*)(const WeightTileArgs&);
/// Writes the weights of a panel, f32 [in][16] in rows of `stride`; reads codes, scale, zero, in and group.
using WeightUnpackFn = void (*)(const WeightTileArgs&, float* to, int64_t stride);

struct WeightKernel {
  WeightTileFn tile;
  WeightUnpackFn unpack;
};
struct WeightTiles {
  WeightKernel bits8, bits4;
  /// Takes sums in y to results in y; any number of channels.
  WeightTileFn finish;
};
extern const WeightTiles kWeightTilesPortable, kWeightTilesAvx2, kWeightTilesAvx512, kWeightTilesNeon;

}  // namespace ulp::kernels
