// The inputs of layers with coded weights as the tiles of few rows read them, see WeightTileArgs.
#pragma once

#include <cstdint>

#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {

/// Rows of `in` numbers, of which neighbours share a scale.
struct WeightInputShape {
  int64_t in, group, groups;
  int bits;
  bool has_zero, has_minimum;
};

/// As WeightTileArgs has them.
struct WeightInputs {
  const float* x = nullptr;
  const int32_t* digits = nullptr;
  int64_t stride = 0, group_stride = 0;
  const DigitGroup* starts = nullptr;
  const float* negative_sums = nullptr;
};

/// How many floats of workspace lay_inputs() fills.
int64_t input_floats(const WeightInputShape& shape, int64_t rows);

/// x: [rows][in]. Inputs of 8-bit codes stay where they are, and without zero points nothing is written. The
/// sum of a group is made of eight sums, of every eighth input each:
/// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
///
/// 4 bits: the unit of a group is a power of two, 2^-149 or more, such that the multiple next to the largest input has 23
/// bits, or 22 where three digits do not hold it. Each input is the nearest multiple, the even one of two.
WeightInputs lay_inputs(const WeightInputShape& shape, int64_t rows, const float* x, float* workspace);

}  // namespace ulp::kernels
