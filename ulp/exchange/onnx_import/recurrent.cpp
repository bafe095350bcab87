// LSTM, GRU and plain recurrent layers. ONNX lists their gates in another order than LibTorch, all of a layer's directions
// in one tensor.
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// ONNX has the gates i o f g of an LSTM and z r n of a GRU, LibTorch i f g o and r z n.
struct RecurrentLayer {
  std::vector<int64_t> gates = {};          ///< LibTorch's from ONNX's
  std::vector<std::string_view> functions;  ///< of the gates
  int64_t hidden = 0, directions = 1;
  bool reverse = false;      ///< from the end to the start
  bool batch_first = false;  ///< layout 1
  bool is_lstm() const { return gates.size() == 4; }
};

/// Whether the functions of the gates are those that LibTorch computes; some writers spell them out for each direction.
bool are_usual(const Call& call, const RecurrentLayer& layer) {
  const FileAttribute* given = call.node().find("activations");
  if (given == nullptr) return true;
  const size_t each = layer.functions.size();
  for (size_t i = 0; i < given->strings.size(); ++i) {
    if (given->strings[i] != layer.functions[i % each]) return false;
  }
  return given->strings.size() == each * static_cast<size_t>(layer.directions);
}

/// Lengths of texts are refused unless all are those of the input.
void check_lengths(Call& call, int64_t steps) {
  if (!call.has(4)) return;
  const bool same =
      call.is_known(4) && std::ranges::all_of(call.ints(4), [&](int64_t one) { return one == steps; });
  if (!same) call.refuse("expected texts of one length, ", steps, ", got others as sequence_lens");
}

void check_form(Call& call, const RecurrentLayer& layer) {
  const std::string direction = call.attribute("direction", "forward");
  if (direction != "forward" && direction != "bidirectional" && direction != "reverse")
    call.refuse("expected the direction forward, reverse or bidirectional, got ", direction);
  if (call.has_attribute("clip") || !are_usual(call, layer))
    call.refuse("expected the usual activations, without clip");
  if (call.attribute("input_forget", int64_t{0}) != 0)
    call.refuse("expected gates of their own for input and forgetting, got input_forget");
  if (layer.is_lstm() && call.has(7)) call.refuse("expected no peepholes");
}

Tensor reordered(const RecurrentLayer& layer, const Tensor& rows) {
  const std::vector<Tensor> chunks = rows.chunk(std::ssize(layer.gates));
  std::vector<Tensor> ordered;
  for (const int64_t gate : layer.gates) ordered.push_back(chunks.at(static_cast<size_t>(gate)));
  return torch::cat(ordered).contiguous();
}

/// "lstm.weight_ih_l0" for what `ulp export` calls "lstm.weight_ih_l0.onnx"; other names get the part
/// behind them.
std::string part_name(const std::string& file_name, const std::string& part, bool backward) {
  const std::string ending = ".onnx";
  std::string name = file_name;
  if (name.ends_with(ending)) {
    name.resize(name.size() - ending.size());
    const size_t at = name.find("bias_ih");
    if (part == "bias_hh" && at != std::string::npos) name.replace(at, part.size(), part);
  } else {
    name += "." + part;
  }
  return name + (backward ? "_reverse" : "");
}

class Weights {
 public:
  Weights(Call& call, const RecurrentLayer& layer) : call_(call), layer_(layer) {}

  std::vector<Tensor> all() {
    std::vector<Tensor> weights;
    for (int64_t direction = 0; direction < layer_.directions; ++direction) {
      weights.push_back(part(1, "weight_ih", direction, 0, 1));
      weights.push_back(part(2, "weight_hh", direction, 0, 1));
      if (!call_.has(3)) continue;
      weights.push_back(part(3, "bias_ih", direction, 0, 2));
      weights.push_back(part(3, "bias_hh", direction, 1, 2));
    }
    return weights;
  }

 private:
  /// The i-th of n pieces of a direction's rows.
  Tensor part(size_t input, const char* name, int64_t direction, int64_t i, int64_t n) {
    Store& store = call_.run().store();
    const std::string& file_name = call_.name(input);
    const Tensor stored = store.is_initializer(file_name) ? store.find(file_name) : Tensor();
    const int64_t rows = std::ssize(layer_.gates) * layer_.hidden * n;
    const Tensor all = stored.defined() ? stored : call_.x(input);
    if (all.dim() < 2 || all.size(0) != layer_.directions || all.size(1) != rows)
      call_.refuse("expected weights of ", layer_.directions, " directions and ", rows, " rows as input ",
                   input, ", got ", all.sizes());
    if (!stored.defined())
      return reordered(layer_, at::select(all, 0, direction).chunk(n)[static_cast<size_t>(i)]);
    const auto make = [&] { return reordered(layer_, stored[direction].chunk(n)[static_cast<size_t>(i)]); };
    return store.attribute(part_name(file_name, name, direction > 0), graph::Attribute::Kind::parameter,
                           make);
  }

  Call& call_;
  const RecurrentLayer& layer_;
};

Tensor state(Call& call, size_t i, const RecurrentLayer& layer, const Tensor& x) {
  if (!call.has(i)) return at::zeros({layer.directions, x.size(1), layer.hidden}, x.options());
  const Tensor given = layer.batch_first ? at::transpose(call.x(i), 0, 1) : call.x(i);
  const std::vector<int64_t> sizes = {layer.directions, x.size(1), layer.hidden};
  if (given.sizes() != at::IntArrayRef(sizes))
    call.refuse("expected states of ", at::IntArrayRef(sizes), " as input ", i, ", got ", given.sizes());
  return given;
}

/// One direction of a GRU that resets its state before it multiplies it, which LibTorch has not: step by step. The weights are
/// LibTorch's, r z n; x, h [batch, ...].
std::vector<Tensor> gru_steps(const Tensor& x, Tensor h, const Tensor* weights, bool biases, bool backward) {
  const std::optional<Tensor> of_input = biases ? std::optional(weights[2]) : std::nullopt;
  const std::vector<Tensor> of_state = weights[1].chunk(3);
  std::vector<std::optional<Tensor>> bias(3);
  if (biases) {
    const std::vector<Tensor> parts = at::chunk(weights[3], 3);
    std::ranges::copy(parts, bias.begin());
  }
  const Tensor gates = at::linear(x, weights[0], of_input);
  const int64_t steps = x.size(0), hidden = h.size(1);
  std::vector<Tensor> states(static_cast<size_t>(steps));
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t step = backward ? steps - 1 - i : i;
    const std::vector<Tensor> gate = at::split(at::select(gates, 0, step), hidden, 1);
    const Tensor reset = at::sigmoid(at::add(gate[0], at::linear(h, of_state[0], bias[0])));
    const Tensor keep = at::sigmoid(at::add(gate[1], at::linear(h, of_state[1], bias[1])));
    const Tensor fresh = at::tanh(at::add(gate[2], at::linear(at::mul(reset, h), of_state[2], bias[2])));
    h = at::add(fresh, at::mul(keep, at::sub(h, fresh)));
    states[static_cast<size_t>(step)] = h;
  }
  return states;
}

/// All directions: [time, batch, directions * hidden] and the last states.
std::tuple<Tensor, Tensor> gru_by_steps(Call& call, const Tensor& x, const Tensor& start,
                                        const std::vector<Tensor>& weights, bool biases) {
  call.count_steps(x.size(0));
  if (x.size(0) == 0) call.refuse("expected one step or more");
  const size_t each = biases ? 4 : 2;
  std::vector<Tensor> sequences, last;
  for (int64_t direction = 0; direction < start.size(0); ++direction) {
    const std::vector<Tensor> states =
        gru_steps(x, at::select(start, 0, direction), &weights[static_cast<size_t>(direction) * each], biases,
                  direction > 0);
    sequences.push_back(at::stack(states, 0));
    last.push_back(direction > 0 ? states.front() : states.back());
  }
  return {at::cat(sequences, 2), at::stack(last, 0)};
}

void run_layer(Call& call, RecurrentLayer layer) {
  const std::string direction = call.attribute("direction", "forward");
  layer.hidden = call.attribute("hidden_size", int64_t{0});
  layer.directions = direction == "bidirectional" ? 2 : 1;
  layer.reverse = direction == "reverse";
  layer.batch_first = call.attribute("layout", int64_t{0}) != 0;
  check_form(call, layer);
  Tensor x = call.x(0);
  if (x.dim() != 3 || layer.hidden < 1) call.refuse("expected [time, batch, features], and a hidden_size");
  if (layer.batch_first) x = at::transpose(x, 0, 1);
  check_lengths(call, x.size(0));
  if (layer.reverse) x = at::flip(x, {0});
  const std::vector<Tensor> weights = Weights(call, layer).all();
  const bool biases = call.has(3), both = layer.directions == 2, training = call.training();
  const Tensor start = state(call, 5, layer, x);
  const auto state_result = [&](const Tensor& last, size_t output) {
    call.set(layer.batch_first ? at::transpose(last, 0, 1) : last, output);
  };
  Tensor y, h;
  if (layer.is_lstm()) {
    Tensor c;
    const std::vector<Tensor> both_states = {start, state(call, 6, layer, x)};
    std::tie(y, h, c) = at::lstm(x, both_states, weights, biases, 1, 0.0, training, both, false);
    state_result(c, 2);
  } else if (call.node().op == "GRU" && call.attribute("linear_before_reset", int64_t{0}) == 0) {
    std::tie(y, h) = gru_by_steps(call, x, start, weights, biases);
  } else if (call.node().op == "GRU") {
    std::tie(y, h) = at::gru(x, start, weights, biases, 1, 0.0, training, both, false);
  } else if (layer.functions[0] == "Relu") {
    std::tie(y, h) = at::rnn_relu(x, start, weights, biases, 1, 0.0, training, both, false);
  } else {
    std::tie(y, h) = at::rnn_tanh(x, start, weights, biases, 1, 0.0, training, both, false);
  }
  state_result(h, 1);
  if (!call.wants(0)) return;
  if (layer.reverse) y = at::flip(y, {0});
  // [time, batch, directions * hidden] -> [time, directions, batch, hidden], or [batch, time, directions, hidden]
  if (layer.batch_first) {
    const Tensor first = at::transpose(y, 0, 1);
    return call.set(at::reshape(first, {first.size(0), first.size(1), layer.directions, layer.hidden}));
  }
  if (!both) return call.set(at::unsqueeze(y, 1));
  call.set(at::permute(at::reshape(y, {y.size(0), y.size(1), 2, layer.hidden}), {0, 2, 1, 3}));
}

void lstm(Call& call) {
  run_layer(call, {.gates = {0, 2, 3, 1}, .functions = {"Sigmoid", "Tanh", "Tanh"}});
}

void gru(Call& call) {
  run_layer(call, {.gates = {1, 0, 2}, .functions = {"Sigmoid", "Tanh"}});
}

/// Without gates.
void rnn(Call& call) {
  const FileAttribute* given = call.node().find("activations");
  const bool relu = given != nullptr && !given->strings.empty() && given->strings[0] == "Relu";
  run_layer(call, {.gates = {0}, .functions = {relu ? "Relu" : "Tanh"}});
}

}  // namespace

ConverterTable recurrent_table() {
  static constexpr Converter kTable[] = {
      {"LSTM", lstm, recurrent_bound}, {"GRU", gru, recurrent_bound}, {"RNN", rnn, recurrent_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
