// A matrix stored as 8- or 4-bit codes with scales: how ops read it from a plan.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime {

/// The constants `weight`, `weight_scale`, `weight_zero` and `weight_minimum` of a step:
///   8 bits: weight i8 [rows, columns] with scale f32[rows], or i8 [rows, groups, size] with [rows, groups]
///   4 bits: weight u8 [rows, groups, size / 2], two codes a byte, the even one in its low half, with scale
///           [rows, groups] and weight_zero u8 [rows, groups], which may be missing: 8 then; or, in its place,
///           weight_minimum f32 [rows, groups]: weights are code * scale - minimum
/// groups = ceil(columns / size).
struct QuantizedMatrix {
  int64_t rows = 1, columns = 1, groups = 1, group = 1;
  int bits = 8;
  const uint8_t* codes = nullptr;
  std::vector<float> scale, minimum;  ///< no minima: empty
  const uint8_t* zero = nullptr;
};

/// True when the step's weight is stored as codes.
bool has_coded_weight(const StepView& view);
/// Checks the constants. `columns`: of the matrix; below 1: those of the stored shape, which then must be
/// whole groups. Scales and minima are checked and not copied.
QuantizedMatrix coded_matrix(const StepView& view, int64_t columns);
/// The same with scales and minima, for a runner to keep.
QuantizedMatrix coded_matrix_with_scales(const StepView& view, int64_t columns);

}  // namespace ulp::runtime
