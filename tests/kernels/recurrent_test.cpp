// LSTM and GRU: cells and whole sequences against float64, and the same bits everywhere where promised.
#include "ulp/kernels/sequence/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/linear/dynamic_linear.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

constexpr Cell kCells[] = {Cell::lstm, Cell::gru};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// One unit in float64 from what its gates get from the input (a) and from h (b).
template <typename A, typename B>
void plain_cell(Cell cell, A a, B b, double& c, double& h) {
  if (cell == Cell::lstm) {
    c = sigmoid(a(1) + b(1)) * c + sigmoid(a(0) + b(0)) * std::tanh(a(2) + b(2));
    h = sigmoid(a(3) + b(3)) * std::tanh(c);
  } else {
    const double r = sigmoid(a(0) + b(0)), z = sigmoid(a(1) + b(1)), n = std::tanh(a(2) + r * b(2));
    h = (1 - z) * n + z * h;
  }
}

TEST(RecurrentCell, IsWithinRoundingOfFloat64AndTheSameEverywhere) {
  for (const Cell cell : kCells) {
    for (const int64_t hidden : {1, 15, 64, 101}) {
      constexpr int64_t kRows = 3;
      const int64_t gates = gate_count(cell) * hidden, stride = gates + 5;
      const auto input = random_floats(kRows * stride, 1, -6, 6);
      const auto recurrent = random_floats(kRows * gates, 2, -6, 6);
      const auto h0 = random_floats(kRows * hidden, 3), c0 = random_floats(kRows * hidden, 4, -3, 3);
      std::vector<float> first;
      for (const Isa isa : available_isas()) {
        Guarded<float> y(kRows * hidden);
        std::vector<float> h = h0, c = c0;
        run_cell(cell, kRows, hidden,
                 {.input_gates = input.data(),
                  .hidden_gates = recurrent.data(),
                  .h = h.data(),
                  .c = c.data(),
                  .y = y.data(),
                  .input_stride = stride,
                  .y_stride = hidden},
                 isa);
        EXPECT_TRUE(y.intact());
        EXPECT_EQ(y.values(), h);
        h.insert(h.end(), c.begin(), c.end());
        if (first.empty()) first = h;
        EXPECT_EQ(std::memcmp(first.data(), h.data(), h.size() * 4), 0) << to_string(isa) << " " << hidden;
      }
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t i = 0; i < hidden; ++i) {
          const auto at = static_cast<size_t>(r * hidden + i);
          const auto a = [&](int64_t g) {
            return double{input[static_cast<size_t>(r * stride + g * hidden + i)]};
          };
          const auto b = [&](int64_t g) {
            return double{recurrent[static_cast<size_t>(r * gates + g * hidden + i)]};
          };
          double c = c0[at], h = h0[at];
          plain_cell(cell, a, b, c, h);
          // A sum of two gates is off by 2^-22 at most, a curve by 2^-22, and c is below 4.
          ASSERT_NEAR(first[at], h, 0x1p-19) << "unit " << i << " of " << hidden;
        }
      }
    }
  }
}

TEST(RecurrentCell, LargeGatesSaturateAndNaNStays) {
  for (const Isa isa : available_isas()) {
    const float big = 1e30F, nan = std::numeric_limits<float>::quiet_NaN();
    const float zeros[4] = {}, open[4] = {big, -big, big, big}, bad[4] = {nan, 0, 0, 0};
    float h = 0, c = 5;
    run_cell(Cell::lstm, 1, 1, {.input_gates = open, .hidden_gates = zeros, .h = &h, .c = &c}, isa);
    EXPECT_EQ(c, 1.0F);
    EXPECT_NEAR(h, std::tanh(1.0), 0x1p-22);
    run_cell(Cell::lstm, 1, 1, {.input_gates = bad, .hidden_gates = zeros, .h = &h, .c = &c}, isa);
    EXPECT_TRUE(std::isnan(h) && std::isnan(c));
    h = 0.25F;
    const float keep[3] = {0, big, 0};
    run_cell(Cell::gru, 1, 1, {.input_gates = keep, .hidden_gates = zeros, .h = &h}, isa);
    EXPECT_EQ(h, 0.25F);
    run_cell(Cell::gru, 1, 1, {.input_gates = bad, .hidden_gates = zeros, .h = &h}, isa);
    EXPECT_TRUE(std::isnan(h));
  }
}

struct RecurrentCase {
  int64_t batch, steps, input, hidden;
  bool bias, reverse;
};

constexpr RecurrentCase kRecurrentCases[] = {{1, 1, 1, 1, false, false},  {3, 7, 5, 6, true, false},
                                             {2, 5, 70, 33, true, true},  {70, 4, 9, 17, true, false},
                                             {1, 12, 16, 64, true, true}, {17, 3, 33, 80, false, false}};

struct RecurrentData {
  std::vector<float> x, input, hidden, input_bias, hidden_bias, input_scale, hidden_scale;
  std::vector<int8_t> input_codes, hidden_codes;

  RecurrentData(Cell cell, const RecurrentCase& c) {
    const int64_t gates = gate_count(cell) * c.hidden;
    const float reach = 1.0F / std::sqrt(static_cast<float>(c.hidden));
    x = random_floats(c.batch * c.steps * c.input, 1, -2, 2);
    input = random_floats(gates * c.input, 2, -reach, reach);
    hidden = random_floats(gates * c.hidden, 3, -reach, reach);
    input_bias = random_floats(gates, 4), hidden_bias = random_floats(gates, 5);
    input_scale = random_floats(gates, 6, 0.001F, 0.01F),
    hidden_scale = random_floats(gates, 7, 0.001F, 0.01F);
    input_codes = random_ints<int8_t>(gates * c.input, 8, -127, 127);
    hidden_codes = random_ints<int8_t>(gates * c.hidden, 9, -127, 127);
  }
  GateWeights f32(bool second, bool bias) const {
    return {.f32 = (second ? hidden : input).data(),
            .bias = bias ? (second ? hidden_bias : input_bias).data() : nullptr};
  }
  GateWeights int8(bool second, bool bias) const {
    return {.codes = (second ? hidden_codes : input_codes).data(),
            .scale = (second ? hidden_scale : input_scale).data(),
            .bias = bias ? (second ? hidden_bias : input_bias).data() : nullptr};
  }
};

RecurrentConfig config_of(Cell cell, const RecurrentCase& c, bool per_tensor = false) {
  return {.cell = cell, .input = c.input, .hidden = c.hidden, .reverse = c.reverse, .per_tensor = per_tensor};
}

/// `round` is applied to x and h where they are multiplied.
std::vector<double> plainly(
    Cell cell, const RecurrentCase& c, const RecurrentData& d,
    const std::function<double(double)>& round = [](double v) { return v; }) {
  std::vector<double> y(static_cast<size_t>(c.batch * c.steps * c.hidden));
  const auto sum = [&](const std::vector<float>& weight, const std::vector<float>& bias, int64_t row,
                       int64_t columns, auto value) {
    double total = c.bias ? bias[static_cast<size_t>(row)] : 0.0;
    for (int64_t k = 0; k < columns; ++k) total += weight[static_cast<size_t>(row * columns + k)] * value(k);
    return total;
  };
  for (int64_t n = 0; n < c.batch; ++n) {
    const auto width = static_cast<size_t>(c.hidden);
    std::vector<double> h(width), state(width);
    for (int64_t i = 0; i < c.steps; ++i) {
      const int64_t t = c.reverse ? c.steps - 1 - i : i;
      std::vector<double> next = h;
      for (int64_t u = 0; u < c.hidden; ++u) {
        const auto a = [&](int64_t g) {
          return sum(d.input, d.input_bias, g * c.hidden + u, c.input, [&](int64_t k) {
            return round(d.x[static_cast<size_t>((n * c.steps + t) * c.input + k)]);
          });
        };
        const auto b = [&](int64_t g) {
          return sum(d.hidden, d.hidden_bias, g * c.hidden + u, c.hidden,
                     [&](int64_t k) { return round(h[static_cast<size_t>(k)]); });
        };
        const auto at = static_cast<size_t>(u);
        plain_cell(cell, a, b, state[at], next[at]);
        y[static_cast<size_t>((n * c.steps + t) * c.hidden + u)] = next[at];
      }
      h = next;
    }
  }
  return y;
}

std::vector<float> run(const Recurrent& layer, const RecurrentCase& c, const RecurrentData& d, int workers) {
  Guarded<float> y(c.batch * c.steps * c.hidden);
  std::vector<float> memory(layer.workspace_bytes(c.batch, c.steps, workers) / 4 + 16);
  float* workspace = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) / 4 % 16;
  layer.run(c.batch, c.steps, d.x.data(), {}, y.data(), workspace, ThreadParallel(workers));
  EXPECT_TRUE(y.intact());
  return y.values();
}

TEST(Recurrent, WithBf16WeightsRoundsWhatItMultiplies) {
  const auto round = [](double v) { return double{bf16_to_float(float_to_bf16(static_cast<float>(v)))}; };
  for (const Cell cell : kCells) {
    for (const RecurrentCase& c : kRecurrentCases) {
      RecurrentData d(cell, c);
      std::vector<uint16_t> input, hidden;
      for (float& w : d.input) w = bf16_to_float(input.emplace_back(float_to_bf16(w)));
      for (float& w : d.hidden) w = bf16_to_float(hidden.emplace_back(float_to_bf16(w)));
      const std::vector<double> expected = plainly(cell, c, d, round);
      // An h next to the middle of two bf16 numbers may be rounded to the other one: 2^-8 of it, times its weight.
      const double bound = 0x1p-8 / std::sqrt(static_cast<double>(c.hidden)) * static_cast<double>(c.steps);
      for (const Isa isa : available_isas()) {
        GateWeights first = d.f32(false, c.bias), second = d.f32(true, c.bias);
        first.f32 = second.f32 = nullptr;
        first.bf16 = input.data(), second.bf16 = hidden.data();
        const auto layer = make_recurrent(config_of(cell, c), first, second, isa);
        EXPECT_EQ(layer->name(),
                  std::string(cell == Cell::lstm ? "lstm" : "gru") + "_bf16_" + to_string(isa));
        const std::vector<float> got = run(*layer, c, d, 3);
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], expected[i], bound) << layer->name() << " " << i;
        EXPECT_THROW(make_recurrent(config_of(cell, c), first, d.f32(true, c.bias), isa), Error);
      }
    }
  }
}

TEST(Recurrent, WithF32WeightsIsWithinRoundingOfFloat64) {
  for (const Cell cell : kCells) {
    for (const RecurrentCase& c : kRecurrentCases) {
      const RecurrentData d(cell, c);
      const std::vector<double> expected = plainly(cell, c, d);
      // Every step adds the roundings of its sums and curves to those of the step before.
      const double bound =
          static_cast<double>(c.steps) * (std::sqrt(static_cast<double>(c.input + c.hidden)) + 16) * 0x1p-23;
      for (const Isa isa : available_isas()) {
        const auto layer = make_recurrent(config_of(cell, c), d.f32(false, c.bias), d.f32(true, c.bias), isa);
        EXPECT_EQ(layer->name(), std::string(cell == Cell::lstm ? "lstm" : "gru") + "_f32_" + to_string(isa));
        for (const int workers : {1, 2}) {
          const std::vector<float> y = run(*layer, c, d, workers);
          for (size_t i = 0; i < y.size(); ++i) {
            ASSERT_NEAR(y[i], expected[i], bound)
                << layer->name() << " element " << i << " of " << c.batch << "x" << c.steps << "x" << c.hidden
                << "; " << repeat_command();
          }
        }
      }
    }
  }
}

/// The documented formula: dynamic layers and cells, one step after the other.
std::vector<float> by_steps(Cell cell, const RecurrentCase& c, const RecurrentData& d, bool per_tensor) {
  const int64_t gates = gate_count(cell) * c.hidden, rows = c.batch * c.steps;
  const auto product = [&](int64_t count, int64_t in, const GateWeights& weights,
                           const std::vector<float>& x) {
    const auto linear = make_dynamic_linear({.in = in, .out = gates, .per_tensor = per_tensor},
                                            {weights.codes, weights.scale, weights.bias}, Isa::portable);
    std::vector<float> y(static_cast<size_t>(count * gates));
    std::vector<float> memory(linear->workspace_bytes(count, 1) / 4 + 16);
    linear->run(count, x.data(), nullptr, y.data(),
                memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) / 4 % 16,
                SerialParallel());
    return y;
  };
  const std::vector<float> input = product(rows, c.input, d.int8(false, c.bias), d.x);
  std::vector<float> y(static_cast<size_t>(rows * c.hidden));
  std::vector<float> h(static_cast<size_t>(c.batch * c.hidden)), state = h;
  for (int64_t i = 0; i < c.steps; ++i) {
    const int64_t t = c.reverse ? c.steps - 1 - i : i;
    const std::vector<float> hidden = product(c.batch, c.hidden, d.int8(true, c.bias), h);
    run_cell(cell, c.batch, c.hidden,
             {.input_gates = input.data() + t * gates,
              .hidden_gates = hidden.data(),
              .h = h.data(),
              .c = state.data(),
              .y = y.data() + t * c.hidden,
              .input_stride = c.steps * gates,
              .y_stride = c.steps * c.hidden},
             Isa::portable);
  }
  return y;
}

TEST(Recurrent, WithInt8WeightsGivesTheSameBitsEverywhere) {
  for (const Cell cell : kCells) {
    for (const RecurrentCase& c : kRecurrentCases) {
      const RecurrentData d(cell, c);
      for (const bool per_tensor : {false, true}) {
        const std::vector<float> expected = by_steps(cell, c, d, per_tensor);
        for (const Isa isa : available_isas()) {
          const auto layer = make_recurrent(config_of(cell, c, per_tensor), d.int8(false, c.bias),
                                            d.int8(true, c.bias), isa);
          for (const int workers : {1, 2}) {
            EXPECT_EQ(run(*layer, c, d, workers), expected)
                << layer->name() << " " << c.batch << "x" << c.steps << "; " << repeat_command();
          }
        }
      }
    }
  }
}

TEST(Recurrent, RefusesSizesAndWeightsItCannotTake) {
  const RecurrentCase c{1, 1, 2, 2, false, false};
  const RecurrentData d(Cell::lstm, c);
  RecurrentConfig none = config_of(Cell::lstm, c);
  none.hidden = 0;
  EXPECT_THROW(make_recurrent(none, d.f32(false, false), d.f32(true, false), Isa::portable), Error);
  const RecurrentConfig good = config_of(Cell::lstm, c);
  EXPECT_THROW(make_recurrent(good, d.f32(false, false), d.int8(true, false), Isa::portable), Error);
  EXPECT_THROW(make_recurrent(good, {}, {}, Isa::portable), Error);
  EXPECT_NO_THROW(make_recurrent(good, d.int8(false, false), d.int8(true, false), Isa::portable));
}

}  // namespace
}  // namespace ulp::kernels
