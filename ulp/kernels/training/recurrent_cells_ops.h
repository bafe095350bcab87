// The table of cells of recurrent layers that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

namespace ulp::kernels {

/// Cells of one sample and one step, as LibTorch has them: n is the hidden size, and gates lie side by side. Everything is
/// computed in fp32 without contraction: the same bits on every instruction set. A state before the first step that is null
/// is 0.
struct RecurrentCellOps {
  /// gates: i, f, g, o before their curves, and behind them afterwards; c = f c_before + i g, h = o tanh(c).
  void (*lstm)(int64_t n, float* gates, const float* c_before, float* c, float* h);
  /// From the gates behind their curves and dh: gate_gradients, of the gates before them, and dc, the gradient of c from later
  /// steps, becomes that of c_before.
  void (*lstm_gradient)(int64_t n, const float* gates, const float* c_before, const float* c, const float* dh,
                        float* dc, float* gate_gradients);
  /// gates: r, z, n of the input before their curves, and behind them afterwards; hidden_gates: those of h_before.
  /// n = tanh(gates n + r hidden_gates n), h = (h_before - n) z + n.
  void (*gru)(int64_t n, float* gates, const float* hidden_gates, const float* h_before, float* h);
  /// gate_gradients: of the input's gates, hidden_gradients: of those of h_before, and dh_before = dh z, to which comes
  /// what goes through the hidden gates.
  void (*gru_gradient)(int64_t n, const float* gates, const float* hidden_gates, const float* h_before,
                       const float* dh, float* gate_gradients, float* hidden_gradients, float* dh_before);
};

extern const RecurrentCellOps kRecurrentCellOpsPortable, kRecurrentCellOpsAvx2, kRecurrentCellOpsAvx512;

}  // namespace ulp::kernels
