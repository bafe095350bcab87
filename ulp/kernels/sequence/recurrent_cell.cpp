#include "ulp/kernels/sequence/recurrent_cell.h"

#include <algorithm>

#include "ulp/kernels/elementwise/row_ops.h"
#include "ulp/kernels/elementwise/rows.h"

namespace ulp::kernels {

void run_cell(Cell cell, int64_t rows, int64_t hidden, const CellStep& step, Isa isa) {
  const RowOps& ops = row_ops(isa);
  for (int64_t row = 0; row < rows; ++row) {
    const float* input = step.input_gates + row * step.input_stride;
    const float* recurrent = step.hidden_gates + row * gate_count(cell) * hidden;
    float* h = step.h + row * hidden;
    if (cell == Cell::lstm) {
      ops.lstm_cell(input, recurrent, step.c + row * hidden, h, hidden);
    } else {
      ops.gru_cell(input, recurrent, h, hidden);
    }
    if (step.y != nullptr) std::copy_n(h, hidden, step.y + row * step.y_stride);
  }
}

}  // namespace ulp::kernels
