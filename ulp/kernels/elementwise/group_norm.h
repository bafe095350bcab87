// Group norm: the channels of an item in groups, each normalised by its own mean and variance.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/elementwise/typed_rows.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// One item of the batch.
struct GroupNormShape {
  int64_t channels = 1, pixels = 1;
  int64_t groups = 1;          ///< of channels side by side, all of one size
  bool channels_last = false;  ///< [pixels, channels] in memory, else [channels, pixels]
  ElementFormat input = {};    ///< computed in f32 whatever it is
  ElementFormat output = {};
};

/// y = (x - mean) / sqrt(variance + epsilon) * weight[channel] + bias[channel] in each of `items` items, with
/// the mean of the item's group and the variance of its whole population (Wu and He 2018, "Group
/// normalization"). `weight` and `bias` hold `channels` numbers or are null; x and y may be the same where
/// their formats are. Throws ulp::Error unless the groups divide the channels. The same bits on every instruction set.
ULP_API void group_norm(const GroupNormShape& shape, int64_t items, const void* x, const float* weight,
                        const float* bias, float epsilon, void* y, Isa isa, const Parallel& parallel);

}  // namespace ulp::kernels
