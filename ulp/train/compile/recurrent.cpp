// Layers of LSTM and GRU cells: the samples of a piece go through all steps, so that threads wait for nothing in between.
#include <algorithm>

#include "ulp/train/compile/plan.h"

namespace ulp::train::compiled {

namespace {

using kernels::PackedProduct;
using kernels::PackedProductOps;

/// Samples at a time: their states stay in the nearest caches.
constexpr int64_t kSampleBlock = 64;

/// Some samples at one step: rows that lie `step` floats apart.
struct StateRows {
  float* data = nullptr;
  int64_t step = 0;
  float* row(int64_t r) const { return data == nullptr ? nullptr : data + r * step; }
};

/// Samples [first, first + rows) of a layer.
struct SampleBlock {
  const Recurrent& layer;
  const StepRun& step;
  int64_t first, rows;

  const MatrixView& view(int matrix) const { return step.views[static_cast<size_t>(matrix)]; }
  /// Their rows of step t in a matrix of all steps, from a column on.
  StateRows at(int matrix, int64_t t, int64_t column = 0) const {
    const MatrixView& of = view(matrix);
    const int64_t batch = of.rows / layer.steps;
    const int64_t row = layer.batch_first ? first * layer.steps + t : t * batch + first;
    return {of.data + row * of.stride + column, of.stride * (layer.batch_first ? layer.steps : 1)};
  }
  /// Their rows of a matrix [batch, hidden]; nothing without one.
  StateRows state(int matrix) const {
    if (matrix < 0) return {};
    const MatrixView& of = view(matrix);
    return {of.data + first * of.stride, of.stride};
  }
  /// The k-th step in the order of the direction.
  int64_t time(int64_t k) const { return layer.reverse ? layer.steps - 1 - k : k; }

  /// y (+)= a times the packed weights + bias; `scratch` holds the rows of a as words.
  void multiply(const StateRows& a, int64_t inner, const StateRows& y, int64_t columns, const float* bias,
                bool adds, float* scratch) const {
    const PackedProductOps& ops = *step.packed;
    const int64_t words = (inner + ops.word_numbers - 1) / ops.word_numbers;
    PackedProduct product{.rows = rows,
                          .words = words,
                          .columns = columns,
                          .a = a.data,
                          .a_row = a.step,
                          .b = view(layer.packed).data,
                          .panel_step = words * ops.panel,
                          .bias = bias,
                          .y = y.data,
                          .y_row = y.step,
                          .adds = adds};
    if (ops.pack_left != nullptr) {
      ops.pack_left({a.data, a.step, 1}, rows, inner, scratch, words, 1);
      product.a = scratch;
      product.a_row = words;
    }
    ops.product(product);
  }
};

void copy_rows(const StateRows& from, const StateRows& to, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    if (from.data == nullptr) {
      std::fill_n(to.row(r), width, 0.0F);
    } else {
      std::copy_n(from.row(r), width, to.row(r));
    }
  }
}

void run_steps(const SampleBlock& of, float* scratch) {
  const Recurrent& layer = of.layer;
  const kernels::RecurrentCellOps& cells = *of.step.cells;
  const int64_t n = layer.hidden, width = layer.gate_count() * n;
  const float* bias = layer.hidden_bias < 0 ? nullptr : of.view(layer.hidden_bias).data;
  StateRows before = of.state(layer.first_state), cell_before = of.state(layer.first_cell);
  for (int64_t k = 0; k < layer.steps; ++k) {
    const int64_t t = of.time(k);
    const StateRows gates = of.at(layer.gates, t), h = of.at(layer.result, t, layer.column);
    copy_rows(before, of.at(layer.before, t), of.rows, n);
    if (layer.gru) {
      const StateRows hidden = of.at(layer.hidden_gates, t);
      // A state of 0 gives the bias alone.
      of.multiply(of.at(layer.before, t), n, hidden, width, bias, false, scratch);
      for (int64_t r = 0; r < of.rows; ++r)
        cells.gru(n, gates.row(r), hidden.row(r), before.row(r), h.row(r));
    } else {
      if (before.data != nullptr) of.multiply(before, n, gates, width, nullptr, true, scratch);
      const StateRows c = of.at(layer.cells, t);
      for (int64_t r = 0; r < of.rows; ++r)
        cells.lstm(n, gates.row(r), cell_before.row(r), c.row(r), h.row(r));
      cell_before = c;
    }
    before = h;
  }
}

/// The gradients of gates at step t from that of the states, `dh`; what goes to the state before comes to `next`, but for
/// what goes through the gates.
void cell_gradients(const SampleBlock& of, int64_t t, const StateRows& cell_before, const StateRows& dh,
                    const StateRows& dc, const StateRows& next) {
  const Recurrent& layer = of.layer;
  const kernels::RecurrentCellOps& cells = *of.step.cells;
  const int64_t n = layer.hidden;
  const StateRows gates = of.at(layer.gates, t), to = of.at(layer.gates_gradient, t);
  if (layer.gru) {
    const StateRows hidden = of.at(layer.hidden_gates, t), to_hidden = of.at(layer.hidden_gradient, t),
                    before = of.at(layer.before, t);
    for (int64_t r = 0; r < of.rows; ++r) {
      cells.gru_gradient(n, gates.row(r), hidden.row(r), before.row(r), dh.row(r), to.row(r),
                         to_hidden.row(r), next.row(r));
    }
    return;
  }
  const StateRows c = of.at(layer.cells, t);
  for (int64_t r = 0; r < of.rows; ++r)
    cells.lstm_gradient(n, gates.row(r), cell_before.row(r), c.row(r), dh.row(r), dc.row(r), to.row(r));
}

void run_steps_back(const SampleBlock& of, float* scratch) {
  const Recurrent& layer = of.layer;
  const int64_t n = layer.hidden, width = layer.gate_count() * n;
  const auto take = [&scratch, n] {
    const StateRows rows{scratch, n};
    scratch += kSampleBlock * n;
    return rows;
  };
  const StateRows dh = take(), dc = take(), next = take();
  copy_rows({}, dc, of.rows, n);
  copy_rows({}, next, of.rows, n);
  for (int64_t k = layer.steps - 1; k >= 0; --k) {
    const int64_t t = of.time(k);
    const StateRows dy = of.at(layer.result_gradient, t, layer.column);
    for (int64_t r = 0; r < of.rows; ++r)
      of.step.rows->add_scaled(dy.row(r), next.row(r), 1.0F, dh.row(r), n);
    const StateRows cell_before = layer.gru ? StateRows{}
                                  : k == 0  ? of.state(layer.first_cell)
                                            : of.at(layer.cells, of.time(k - 1));
    cell_gradients(of, t, cell_before, dh, dc, next);
    of.multiply(of.at(layer.hidden_gradient, t), width, next, n, nullptr, layer.gru, scratch);
  }
  if (layer.first_state_gradient >= 0) copy_rows(next, of.state(layer.first_state_gradient), of.rows, n);
  if (layer.first_cell_gradient >= 0) copy_rows(dc, of.state(layer.first_cell_gradient), of.rows, n);
}

}  // namespace

int64_t Recurrent::scratch() const {
  return kSampleBlock * hidden * (gate_count() + 3);
}

void run_recurrent(const Recurrent& layer, const StepRun& step, int64_t begin, int64_t end, float* scratch) {
  for (int64_t first = begin; first < end; first += kSampleBlock)
    run_steps({layer, step, first, std::min(kSampleBlock, end - first)}, scratch);
}

void run_recurrent_gradient(const Recurrent& layer, const StepRun& step, int64_t begin, int64_t end,
                            float* scratch) {
  for (int64_t first = begin; first < end; first += kSampleBlock)
    run_steps_back({layer, step, first, std::min(kSampleBlock, end - first)}, scratch);
}

}  // namespace ulp::train::compiled
