// Loops over rows of attention scores for compiled training steps: softmax in parts, its gradient, dropout.
#pragma once

#include "ulp/base/export.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/training/attention_rows_ops.h"

namespace ulp::kernels {

/// The functions for an instruction set, for callers that run them many times.
ULP_API const AttentionRowOps& attention_row_ops(Isa isa);

}  // namespace ulp::kernels
