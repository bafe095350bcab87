// Loops over rows of floats for compiled training steps: values and gradients of activations, sums, norms and losses.
#pragma once

#include "ulp/base/export.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/training/step_rows_ops.h"

namespace ulp::kernels {

/// The functions for an instruction set, for callers that run them many times.
ULP_API const StepRowOps& step_row_ops(Isa isa);

}  // namespace ulp::kernels
