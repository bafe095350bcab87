// Cells of LSTM and GRU layers for compiled training steps, forward and backward.
#pragma once

#include "ulp/base/export.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/training/recurrent_cells_ops.h"

namespace ulp::kernels {

/// The functions for an instruction set, for callers that run them many times.
ULP_API const RecurrentCellOps& recurrent_cell_ops(Isa isa);

}  // namespace ulp::kernels
