// LSTM and GRU layers. ONNX lists their gates in another order than LibTorch, all of a layer's directions
// in one tensor.
#include <torch/types.h>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// ONNX has the gates i o f g of an LSTM and z r n of a GRU, LibTorch i f g o and r z n.
struct RecurrentLayer {
  bool cell = false;
  std::vector<int64_t> gates = {};  ///< LibTorch's from ONNX's
  int64_t hidden = 0, directions = 1;
};

/// Whether the functions of the gates are those that LibTorch computes; some writers spell them out for each direction.
bool are_usual(const Call& call, const RecurrentLayer& layer) {
  const FileAttribute* given = call.node().find("activations");
  if (given == nullptr) return true;
  const size_t each = layer.cell ? 3 : 2;
  for (size_t i = 0; i < given->strings.size(); ++i) {
    if (given->strings[i] != (i % each == 0 ? "Sigmoid" : "Tanh")) return false;
  }
  const bool both = call.attribute("direction", "forward") == "bidirectional";
  return given->strings.size() == each * (both ? 2 : 1);
}

void check_form(Call& call, const RecurrentLayer& layer) {
  const std::string direction = call.attribute("direction", "forward");
  if (direction != "forward" && direction != "bidirectional")
    call.refuse("expected the direction forward or bidirectional, got ", direction);
  if (call.has(4)) call.refuse("expected texts of one length, got sequence_lens");
  if (call.attribute("layout", int64_t{0}) != 0) call.refuse("expected layout 0");
  if (call.has_attribute("clip") || !are_usual(call, layer))
    call.refuse("expected the usual activations, without clip");
  if (call.has(7)) call.refuse("expected no peepholes");
  if (!layer.cell && call.attribute("linear_before_reset", int64_t{0}) == 0)
    call.refuse("expected linear_before_reset, as LibTorch's GRU computes");
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
    if (!stored.defined() || stored.dim() < 2 || stored.size(0) != layer_.directions ||
        stored.size(1) != rows)
      call_.refuse("expected weights of ", layer_.directions, " directions and ", rows,
                   " rows in the file as input ", input);
    const auto make = [&] { return reordered(layer_, stored[direction].chunk(n)[static_cast<size_t>(i)]); };
    return store.attribute(part_name(file_name, name, direction > 0), graph::Attribute::Kind::parameter,
                           make);
  }

  Call& call_;
  const RecurrentLayer& layer_;
};

Tensor state(Call& call, size_t i, const RecurrentLayer& layer, const Tensor& x) {
  if (call.has(i)) return call.x(i);
  return at::zeros({layer.directions, x.size(1), layer.hidden}, x.options());
}

void run_layer(Call& call, RecurrentLayer layer) {
  check_form(call, layer);
  layer.hidden = call.attribute("hidden_size", int64_t{0});
  layer.directions = call.attribute("direction", "forward") == "bidirectional" ? 2 : 1;
  const Tensor x = call.x(0);
  if (x.dim() != 3 || layer.hidden < 1) call.refuse("expected [time, batch, features], and a hidden_size");
  const std::vector<Tensor> weights = Weights(call, layer).all();
  const bool biases = call.has(3), both = layer.directions == 2;
  Tensor y, h, c;
  if (layer.cell) {
    const std::vector<Tensor> start = {state(call, 5, layer, x), state(call, 6, layer, x)};
    std::tie(y, h, c) =
        at::lstm(x, start, weights, biases, 1, 0.0, call.training(), both, /*batch_first=*/false);
    call.set(c, 2);
  } else {
    std::tie(y, h) = at::gru(x, state(call, 5, layer, x), weights, biases, 1, 0.0, call.training(), both,
                             /*batch_first=*/false);
  }
  call.set(h, 1);
  // [time, batch, directions * hidden] -> [time, directions, batch, hidden]
  if (!call.wants(0)) return;
  if (!both) return call.set(at::unsqueeze(y, 1));
  call.set(at::permute(at::reshape(y, {y.size(0), y.size(1), 2, layer.hidden}), {0, 2, 1, 3}));
}

void lstm(Call& call) {
  run_layer(call, {.cell = true, .gates = {0, 2, 3, 1}});
}

void gru(Call& call) {
  run_layer(call, {.cell = false, .gates = {1, 0, 2}});
}

}  // namespace

ConverterTable recurrent_table() {
  static constexpr Converter kTable[] = {{"LSTM", lstm, recurrent_bound}, {"GRU", gru, recurrent_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
