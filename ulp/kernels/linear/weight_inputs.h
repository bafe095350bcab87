// The inputs of layers with coded weights as the tiles of few rows read them, see WeightTileArgs.
#pragma once

#include <cstdint>

namespace ulp::kernels {

/// Rows of `in` numbers, of which neighbours share a scale.
struct WeightInputShape {
  int64_t in, group, groups;
  int bits;
  bool has_zero;
};

struct WeightInputs {
  const float* x;
  int64_t stride, group_stride;
  const float* negative_sums;
};

/// How many floats of workspace lay_inputs() fills.
int64_t input_floats(const WeightInputShape& shape, int64_t rows);

/// x: [rows][in]. Inputs of 8-bit codes stay where they are, and without zero points nothing is written. The
/// sum of a group is made of eight sums, of every eighth input each:
/// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
WeightInputs lay_inputs(const WeightInputShape& shape, int64_t rows, const float* x, float* workspace);

}  // namespace ulp::kernels
