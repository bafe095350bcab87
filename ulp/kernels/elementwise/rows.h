// Operations on the rows of a matrix of floats: layer norm and curves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/element.h"
#include "ulp/kernels/elementwise/typed_rows.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

struct RowOps;
/// The table of an instruction set.
const RowOps& row_ops(Isa isa);

/// The inputs and outputs of a layer norm.
struct LayerNormShape {
  int64_t columns = 1;          ///< of a row
  ElementFormat input, output;  ///< computed in f32 whatever they are
  float epsilon = 0;
};

/// Bytes of scratch for so many workers; 0 where both sides are f32.
ULP_API size_t layer_norm_workspace_bytes(const LayerNormShape& shape, int workers);

/// y[r] = (x[r] - mean) / sqrt(variance + epsilon) * weight + bias over each of `rows` rows, with the variance of the
/// whole population (Ba et al. 2016, "Layer normalization"). `weight` and `bias` hold `columns` numbers or are null; x
/// and y may be the same where their formats are. `workspace` is 64-byte aligned. The same bits on every instruction
/// set.
ULP_API void layer_norm(const LayerNormShape& shape, const void* x, const float* weight, const float* bias,
                        void* y, int64_t rows, void* workspace, Isa isa, const Parallel& parallel);

}  // namespace ulp::kernels
