// lstm and gru one number at a time, in float64 but for what is quantized.
#include <functional>

#include "plain_loops.h"
#include "plain_values.h"
#include "ulp/kernels/common/float_bits.h"

namespace ulp::runtime::plain {
namespace {

using Row = std::vector<float>;
using Rows = std::vector<Row>;

/// The quantizer of each row, or of all as one.
std::vector<Quantizer> quantizers(const Rows& rows, bool per_tensor) {
  std::vector<Quantizer> found;
  float low = 0, high = 0;
  for (const Row& row : rows) {
    if (!per_tensor) low = high = 0;
    for (const float v : row) low = std::min(low, v), high = std::max(high, v);
    found.emplace_back(low, high);
  }
  if (per_tensor) found.assign(rows.size(), found.back());
  return found;
}

/// The gates that rows get through "weight_ih" or "weight_hh".
std::vector<std::vector<double>> gates_of(const Plan& plan, const Step& step, const std::string& which,
                                          const Rows& rows) {
  const std::string weight = "weight_" + which, scale = weight + "_scale", bias = "bias_" + which;
  const Constant& matrix = plan.constants.at(step.constants.at(weight));
  const int64_t out = matrix.shape[0], in = matrix.shape[1];
  const bool codes = matrix.type == DataType::i8, rounds = matrix.type == DataType::bf16;
  const auto weight_at = [&](int64_t i) {
    return rounds ? kernels::bf16_to_float(constant_at<uint16_t>(plan, step, weight.c_str(), i))
                  : constant_at<float>(plan, step, weight.c_str(), i);
  };
  const std::vector<Quantizer> q = quantizers(rows, step.get<RecurrentAttributes>().per_tensor);
  std::vector<std::vector<double>> gates;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<double>& row = gates.emplace_back();
    for (int64_t c = 0; c < out; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < in; ++k) {
        const float exact = rows[r][static_cast<size_t>(k)];
        const float v = rounds ? kernels::bf16_to_float(kernels::float_to_bf16(exact)) : exact;
        sum += codes ? static_cast<double>(q[r].centered(v) *
                                           constant_at<int8_t>(plan, step, weight.c_str(), c * in + k))
                     : double{v} * weight_at(c * in + k);
      }
      if (codes) sum *= q[r].scale * constant_at<float>(plan, step, scale.c_str(), c);
      if (step.constants.contains(bias)) sum += constant_at<float>(plan, step, bias.c_str(), c);
      row.push_back(sum);
    }
  }
  return gates;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

void recurrent(const Plan& plan, const Step& step, const std::vector<View>& inputs, const View& y,
               int64_t batch) {
  const View& x = inputs[0];
  const int64_t steps = x.info.shape[1], in = x.info.shape[2], width = y.info.shape[2];
  Rows words;
  for (int64_t i = 0; i < element_count(x.info, batch); ++i) {
    if (i % in == 0) words.emplace_back();
    words.back().push_back(x.get(i));
  }
  const auto from_input = gates_of(plan, step, "ih", words);
  const size_t items = words.size() / static_cast<size_t>(steps);
  const int64_t y_steps = y.info.shape[1];
  Rows h(items, Row(static_cast<size_t>(width))), c = h;
  for (size_t input = 1; input < inputs.size(); ++input) {
    Rows& state = input == 1 ? h : c;
    for (int64_t i = 0; i < element_count(inputs[input].info, batch); ++i)
      state[static_cast<size_t>(i / width)][static_cast<size_t>(i % width)] = inputs[input].get(i);
  }
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = step.get<RecurrentAttributes>().reverse ? steps - 1 - i : i;
    const auto from_state = gates_of(plan, step, "hh", h);
    for (size_t n = 0; n < items; ++n) {
      const size_t row = n * static_cast<size_t>(steps) + static_cast<size_t>(t);
      for (int64_t u = 0; u < width; ++u) {
        const auto at = static_cast<size_t>(u);
        const auto a = [&](int64_t gate) { return from_input[row][static_cast<size_t>(gate * width + u)]; };
        const auto b = [&](int64_t gate) { return from_state[n][static_cast<size_t>(gate * width + u)]; };
        const auto sum = [&](int64_t gate) { return a(gate) + b(gate); };
        double next;
        if (step.op == Op::lstm) {
          const double cell = sigmoid(sum(1)) * c[n][at] + sigmoid(sum(0)) * std::tanh(sum(2));
          c[n][at] = static_cast<float>(cell);
          next = sigmoid(sum(3)) * std::tanh(cell);
        } else {
          const double fresh = std::tanh(a(2) + sigmoid(sum(0)) * b(2)), z = sigmoid(sum(1));
          next = (1 - z) * fresh + z * h[n][at];
        }
        h[n][at] = static_cast<float>(next);
        y.set((static_cast<int64_t>(n) * y_steps + t) * width + u, h[n][at]);
      }
    }
  }
  for (size_t n = 0; n < items && y_steps > steps; ++n) {
    for (int64_t u = 0; u < width; ++u)
      y.set((static_cast<int64_t>(n) * y_steps + steps) * width + u, c[n][static_cast<size_t>(u)]);
  }
}

}  // namespace ulp::runtime::plain
