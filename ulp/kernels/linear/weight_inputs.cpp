#include "ulp/kernels/linear/weight_inputs.h"

#include <algorithm>

#include "ulp/kernels/common/aligned_buffer.h"
#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {
namespace {

/// What input j of a word is multiplied by: its code is 16^j times as large where it lies. The highest one is
/// moved.
constexpr float kPlaces[kCodesOfWord] = {1, 0x1p-4F, 0x1p-8F, 0x1p-12F, 0x1p-16F, 0x1p-20F, 0x1p-24F, 1};

bool needs_sums(const WeightInputShape& shape) {
  return shape.bits == 4 || shape.has_zero;
}

/// From one group to the next, of inputs that are moved.
int64_t placed_group(const WeightInputShape& shape) {
  return shape.bits == 4 ? round_up(shape.group, kCodesOfWord) : 0;
}

float negative_sum(const float* x, int64_t count) {
  float sums[8] = {};
  int64_t k = 0;
  for (; k + 8 <= count; k += 8) {
    for (int64_t j = 0; j < 8; ++j) sums[j] += x[k + j];
  }
  for (int64_t j = 0; k + j < count; ++j) sums[j] += x[k + j];
  for (int64_t step : {4, 2, 1}) {
    for (int64_t j = 0; j < step; ++j) sums[j] += sums[j + step];
  }
  return -sums[0];
}

void place(const float* x, int64_t count, float* to) {
  int64_t k = 0;
  for (; k + kCodesOfWord <= count; k += kCodesOfWord) {
    for (int64_t j = 0; j < kCodesOfWord; ++j) to[k + j] = x[k + j] * kPlaces[j];
  }
  for (int64_t j = 0; k + j < count; ++j) to[k + j] = x[k + j] * kPlaces[j];
}

}  // namespace

int64_t input_floats(const WeightInputShape& shape, int64_t rows) {
  return rows * shape.groups * (placed_group(shape) + (needs_sums(shape) ? 1 : 0));
}

WeightInputs lay_inputs(const WeightInputShape& shape, int64_t rows, const float* x, float* workspace) {
  if (!needs_sums(shape)) return {x, shape.in, shape.group, nullptr};
  const int64_t step = placed_group(shape);
  float* placed = workspace + rows * shape.groups;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < shape.groups; ++g) {
      const int64_t at = row * shape.groups + g, count = std::min(shape.group, shape.in - g * shape.group);
      const float* of_group = x + row * shape.in + g * shape.group;
      workspace[at] = negative_sum(of_group, count);
      if (step > 0) place(of_group, count, placed + at * step);
    }
  }
  if (step == 0) return {x, shape.in, shape.group, workspace};
  return {placed, shape.groups * step, step, workspace};
}

}  // namespace ulp::kernels
