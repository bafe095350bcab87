// One time step of the cells of recurrent networks, after the products with their weights.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// lstm: gates i, f, g, o (Hochreiter and Schmidhuber 1997, with a forget gate); gru: r, z, n (Cho et al.
/// 2014).
enum class Cell : uint8_t { lstm, gru };

/// Gates of a cell.
constexpr int64_t gate_count(Cell cell) {
  return cell == Cell::lstm ? 4 : 3;
}

/// Where a time step reads and writes. A row holds the gates of one sequence, each a run of `hidden` numbers.
struct CellStep {
  const float* input_gates = nullptr;   ///< W_ih x + b_ih; rows are `input_stride` apart
  const float* hidden_gates = nullptr;  ///< W_hh h + b_hh, [rows][gates * hidden]
  float* h = nullptr;                   ///< [rows][hidden], read (gru) and replaced
  float* c = nullptr;                   ///< [rows][hidden], read and replaced; lstm only
  float* y = nullptr;                   ///< the new h once more; rows are `y_stride` apart; may be null
  int64_t input_stride = 0, y_stride = 0;
};

/// With a = input_gates and b = hidden_gates, as PyTorch's LSTM and GRU:
///   lstm: i, f, o = sigmoid(a + b), g = tanh(a + b), c = f c + i g, h = o tanh(c)
///   gru:  r, z = sigmoid(a + b), n = tanh(a + r b), h = (h - n) z + n
/// Every operation is rounded to float32 once: the same bits on every instruction set.
ULP_API void run_cell(Cell cell, int64_t rows, int64_t hidden, const CellStep& step, Isa isa);

}  // namespace ulp::kernels
