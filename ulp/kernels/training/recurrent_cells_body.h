// The loops of recurrent_cells_ops.h, written so that the compiler vectorizes them. Included once by a file per instruction
// set, which names its table with ULP_RECURRENT_CELL_OPS; everything here has internal linkage.
#include "ulp/kernels/pointwise/math.h"
#include "ulp/kernels/training/recurrent_cells_ops.h"

namespace ulp::kernels {
namespace {

inline float state_at(const float* state, int64_t j) {
  return state == nullptr ? 0.0F : state[j];
}

void lstm_cell(int64_t n, float* gates, const float* c_before, float* c, float* h) {
  float *i = gates, *f = gates + n, *g = gates + 2 * n, *o = gates + 3 * n;
  for (int64_t j = 0; j < 2 * n; ++j) i[j] = sigmoid_activation(i[j]);
  for (int64_t j = 0; j < n; ++j) g[j] = tanh_activation(g[j]);
  for (int64_t j = 0; j < n; ++j) o[j] = sigmoid_activation(o[j]);
  for (int64_t j = 0; j < n; ++j) {
    c[j] = f[j] * state_at(c_before, j) + i[j] * g[j];
    h[j] = o[j] * tanh_activation(c[j]);
  }
}

void lstm_cell_gradient(int64_t n, const float* gates, const float* c_before, const float* c, const float* dh,
                        float* dc, float* gate_gradients) {
  const float *i = gates, *f = gates + n, *g = gates + 2 * n, *o = gates + 3 * n;
  float *di = gate_gradients, *df = di + n, *dg = df + n, *d_o = dg + n;
  for (int64_t j = 0; j < n; ++j) {
    const float t = tanh_activation(c[j]);
    const float dcell = dc[j] + dh[j] * o[j] * (1.0F - t * t);
    d_o[j] = dh[j] * t * (o[j] * (1.0F - o[j]));
    di[j] = dcell * g[j] * (i[j] * (1.0F - i[j]));
    dg[j] = dcell * i[j] * (1.0F - g[j] * g[j]);
    df[j] = dcell * state_at(c_before, j) * (f[j] * (1.0F - f[j]));
    dc[j] = dcell * f[j];
  }
}

void gru_cell(int64_t n, float* gates, const float* hidden_gates, const float* h_before, float* h) {
  float *z = gates + n, *m = gates + 2 * n;
  for (int64_t j = 0; j < 2 * n; ++j) gates[j] = sigmoid_activation(gates[j] + hidden_gates[j]);
  for (int64_t j = 0; j < n; ++j) m[j] = tanh_activation(m[j] + gates[j] * hidden_gates[2 * n + j]);
  for (int64_t j = 0; j < n; ++j) h[j] = (state_at(h_before, j) - m[j]) * z[j] + m[j];
}

void gru_cell_gradient(int64_t n, const float* gates, const float* hidden_gates, const float* h_before,
                       const float* dh, float* gate_gradients, float* hidden_gradients, float* dh_before) {
  const float *r = gates, *z = gates + n, *m = gates + 2 * n;
  float *dr = gate_gradients, *dz = dr + n, *dm = dz + n;
  for (int64_t j = 0; j < n; ++j) {
    const float before = state_at(h_before, j);
    const float dpre = dh[j] * (1.0F - z[j]) * (1.0F - m[j] * m[j]);
    dm[j] = dpre;
    dr[j] = dpre * hidden_gates[2 * n + j] * (r[j] * (1.0F - r[j]));
    dz[j] = dh[j] * (before - m[j]) * (z[j] * (1.0F - z[j]));
    hidden_gradients[j] = dr[j];
    hidden_gradients[n + j] = dz[j];
    hidden_gradients[2 * n + j] = dpre * r[j];
    dh_before[j] = dh[j] * z[j];
  }
}

}  // namespace

extern const RecurrentCellOps ULP_RECURRENT_CELL_OPS;
const RecurrentCellOps ULP_RECURRENT_CELL_OPS = {lstm_cell, lstm_cell_gradient, gru_cell, gru_cell_gradient};

}  // namespace ulp::kernels
