// Operations on the rows of a matrix of floats: layer norm and curves.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/element.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

struct RowOps;
/// The table of an instruction set.
const RowOps& row_ops(Isa isa);

/// y[r] = (x[r] - mean) / sqrt(variance + epsilon) * weight + bias over each of `rows` rows of `columns`,
/// with the variance of the whole population (Ba et al. 2016, "Layer normalization"). `weight` and `bias`
/// hold `columns` numbers or are null; x and y may be the same. The same bits on every instruction set.
ULP_API void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* y,
                        int64_t rows, int64_t columns, Isa isa, const Parallel& parallel);

}  // namespace ulp::kernels
