#include "ulp/kernels/sequence/recurrent.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "ulp/base/error.h"
#include "ulp/kernels/conv/conv_impl.h"
#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/kernels/linear/dynamic_linear.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kUnitsPerTask = 4096;  // of a cell: a few microseconds

/// Hands out parts of a workspace, each on a cache line of its own.
class Parts {
 public:
  explicit Parts(void* workspace) : at_(static_cast<std::byte*>(workspace)) {}
  template <typename T>
  T* take(int64_t count) {
    std::byte* part = at_;
    at_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(part);
  }
  void* rest() const { return at_; }

 private:
  std::byte* at_;
};

/// A product with packed weights.
class Product {
 public:
  Product(const RecurrentConfig& config, int64_t columns, const GateWeights& weights, Isa isa)
      : columns_(columns), rounds_(weights.bf16 != nullptr), isa_(isa) {
    const int64_t rows = gate_count(config.cell) * config.hidden;
    if (weights.codes != nullptr) {
      dynamic_ =
          make_dynamic_linear({.in = columns, .out = rows, .per_tensor = config.per_tensor},
                              {.codes = weights.codes, .scale = weights.scale, .bias = weights.bias}, isa);
      return;
    }
    ConvConfig linear;
    linear.shape.in_channels = columns;
    linear.shape.out_channels = rows;
    linear.input = rounds_ ? DataType::bf16 : DataType::f32;
    ConvWeights packed;
    packed.f32 = weights.f32;
    packed.bf16 = weights.bf16;
    packed.bias = weights.bias;
    dense_ = make_conv(linear, packed, isa);
  }
  size_t workspace_bytes(int64_t rows, int workers) const {
    if (dynamic_) return dynamic_->workspace_bytes(rows, workers);
    const int64_t rounded = rounds_ ? round_up(rows * columns_ * 2, 64) : 0;
    return static_cast<size_t>(rounded) + dense_->workspace_bytes(rows, workers);
  }
  void run(int64_t rows, const float* x, float* y, void* workspace, const Parallel& parallel) const {
    if (dynamic_) return dynamic_->run(rows, x, nullptr, y, workspace, parallel);
    if (!rounds_) return dense_->run(rows, x, nullptr, y, workspace, parallel);
    Parts parts(workspace);
    auto* rounded = parts.take<uint16_t>(rows * columns_);
    convert_f32_to_bf16(x, rounded, rows * columns_, isa_, parallel);
    dense_->run(rows, rounded, nullptr, y, parts.rest(), parallel);
  }
  std::string name() const {
    return dynamic_ ? dynamic_->name() : std::string(rounds_ ? "bf16_" : "f32_") + to_string(isa_);
  }

 private:
  int64_t columns_;
  bool rounds_;  ///< the input, to bf16
  Isa isa_;
  std::unique_ptr<DynamicLinear> dynamic_;
  std::unique_ptr<Conv> dense_;
};

class PackedRecurrent final : public Recurrent {
 public:
  PackedRecurrent(const RecurrentConfig& config, const GateWeights& input, const GateWeights& hidden, Isa isa)
      : config_(config),
        gates_(gate_count(config.cell) * config.hidden),
        input_(config, config.input, input, isa),
        hidden_(config, config.hidden, hidden, isa),
        isa_(isa) {}

  size_t workspace_bytes(int64_t batch, int64_t steps, int workers) const override {
    const int64_t own = round_up(batch * steps * gates_ * 4, 64) + round_up(batch * gates_ * 4, 64) +
                        2 * round_up(batch * config_.hidden * 4, 64);
    return static_cast<size_t>(own) +
           std::max(input_.workspace_bytes(batch * steps, workers), hidden_.workspace_bytes(batch, workers));
  }

  void run(int64_t batch, int64_t steps, const float* x, const RecurrentStates& states, float* y,
           void* workspace, const Parallel& parallel) const override {
    const int64_t width = config_.hidden, y_stride = (states.last_c ? steps + 1 : steps) * width;
    Parts parts(workspace);
    float* input_gates = parts.take<float>(batch * steps * gates_);
    float* hidden_gates = parts.take<float>(batch * gates_);
    float* h = parts.take<float>(batch * width);
    float* c = parts.take<float>(batch * width);
    begin(states.first_h, h, batch * width);
    begin(states.first_c, c, batch * width);
    input_.run(batch * steps, x, input_gates, parts.rest(), parallel);
    const int64_t per_task = std::max<int64_t>(1, kUnitsPerTask / width);
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t t = config_.reverse ? steps - 1 - i : i;
      hidden_.run(batch, h, hidden_gates, parts.rest(), parallel);
      parallel.run(ceil_div(batch, per_task), [&](int64_t task, int) {
        const int64_t row = task * per_task;
        run_cell(config_.cell, std::min(batch - row, per_task), width,
                 {.input_gates = input_gates + (row * steps + t) * gates_,
                  .hidden_gates = hidden_gates + row * gates_,
                  .h = h + row * width,
                  .c = c + row * width,
                  .y = y + row * y_stride + t * width,
                  .input_stride = steps * gates_,
                  .y_stride = y_stride},
                 isa_);
      });
    }
    for (int64_t row = 0; states.last_c && row < batch; ++row)
      std::copy_n(c + row * width, width, y + row * y_stride + steps * width);
  }

  std::string name() const override {
    return (config_.cell == Cell::lstm ? "lstm_" : "gru_") + hidden_.name();
  }

 private:
  static void begin(const float* first, float* state, int64_t count) {
    first != nullptr ? std::copy_n(first, count, state) : std::fill_n(state, count, 0.0F);
  }

  RecurrentConfig config_;
  int64_t gates_;
  Product input_, hidden_;
  Isa isa_;
};

}  // namespace

std::unique_ptr<Recurrent> make_recurrent(const RecurrentConfig& config, const GateWeights& input,
                                          const GateWeights& hidden, Isa isa) {
  constexpr const char* kWhere = "kernels.make_recurrent";
  if (config.input < 1 || config.hidden < 1) {
    fail(kWhere, "expected at least 1 input feature and hidden feature, got ", config.input, " and ",
         config.hidden);
  }
  const auto given = [](const GateWeights& w) {
    return std::array{w.f32 != nullptr, w.bf16 != nullptr, w.codes != nullptr};
  };
  if (given(input) != given(hidden) || std::ranges::count(given(input), true) != 1) {
    fail(kWhere, "expected both weights as f32, both as bf16 or both as int8 codes");
  }
  return std::make_unique<PackedRecurrent>(config, input, hidden, isa);
}

}  // namespace ulp::kernels
