// Layers of LSTM and GRU cells.
#include <array>

#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

namespace {

/// What all layers of a call have in common.
struct RecurrentCall {
  bool gru = false, batch_first = false, biases = true;
  int64_t layers = 1, directions = 1, steps = 0, hidden = 0;
  RowCount batch;
};

RecurrentCall call_of(Builder& builder, const graph::Node& node, bool gru) {
  const auto sizes = builder.sizes(node, "input");
  if (sizes.size() != 3) builder.refuse(node, "expected sequences of three dimensions, got ", sizes.size());
  RecurrentCall call;
  call.gru = gru;
  call.batch_first = builder.flag(node, "batch_first");
  call.biases = builder.flag(node, "has_biases");
  call.layers = static_cast<int64_t>(builder.number(node, "num_layers"));
  call.directions = builder.flag(node, "bidirectional") ? 2 : 1;
  const graph::SizeExpr &length = sizes[call.batch_first ? 1 : 0], &batch = sizes[call.batch_first ? 0 : 1];
  if (!length.constant())
    builder.refuse(node, "expected sequences of a fixed length, got one that follows the batch");
  call.steps = length.offset;
  call.batch = builder.count_of(node, {batch});
  const size_t each = call.biases ? 4 : 2;
  const auto& parameters = node.arg("params").items;
  if (parameters.size() != static_cast<size_t>(call.layers * call.directions) * each)
    builder.refuse(node, "expected ", each, " parameters for each layer and direction, got ",
                   parameters.size(), " in all");
  call.hidden = builder.at(builder.matrix(node, parameters[1])).width;
  return call;
}

/// A state before the first step, for one layer and direction; -1 for zeros.
int first_state(Builder& builder, const graph::Node& node, const RecurrentCall& call,
                const graph::Argument& given, int64_t number) {
  if (!given.is_value()) builder.refuse(node, "expected a state before the first step, got none");
  if (given.value->producer->target() == "aten::zeros") return -1;
  Move move;
  move.dims = {{call.batch, {}, 0}, {{0, 1, call.hidden}, {0, 1, 0}, 1}};
  move.start = call.batch.times(number);
  return builder.moved(builder.padded(builder.matrix(node, given)), move, call.batch, call.hidden);
}

/// The parameters of a layer and direction: weights of the input and of the state, and their biases.
struct CellParameters {
  int input = -1, state = -1, input_bias = -1, state_bias = -1;
};

CellParameters parameters_of(Builder& builder, const graph::Node& node, const RecurrentCall& call,
                             int64_t number, int64_t inputs) {
  const auto& all = node.arg("params").items;
  const size_t each = call.biases ? 4 : 2, first = static_cast<size_t>(number) * each;
  CellParameters found{builder.matrix(node, all[first]), builder.matrix(node, all[first + 1])};
  if (call.biases) {
    found.input_bias = builder.matrix(node, all[first + 2]);
    found.state_bias = builder.matrix(node, all[first + 3]);
  }
  const int64_t rows = (call.gru ? 3 : 4) * call.hidden;
  const auto is = [&](int matrix, int64_t columns) {
    return builder.at(matrix).home == Home::outside && builder.at(matrix).rows == RowCount{0, 1, rows} &&
           builder.at(matrix).width == columns;
  };
  if (!is(found.input, inputs) || !is(found.state, call.hidden))
    builder.refuse(node, "expected weights of ", rows, " rows without projections, got others");
  return found;
}

/// The bias of the gates: LSTM cells add that of the state, too.
int gate_bias(Builder& builder, const RecurrentCall& call, const CellParameters& of) {
  if (!call.biases || call.gru) return of.input_bias;
  const int input = builder.padded(of.input_bias), state = builder.padded(of.state_bias);
  const int sum = builder.make_like(input);
  builder.emit({.op = Op::add_scaled, .out = sum, .a = input, .b = state, .p = {1.0F}});
  return sum;
}

/// One direction of a layer, whose states go to columns of `result`.
Recurrent add_direction(Builder& builder, const RecurrentCall& call, const CellParameters& of, int x,
                        int result, int64_t direction, const std::array<int, 2>& first) {
  const RowCount rows = call.batch.times(call.steps);
  const int64_t gates = (call.gru ? 3 : 4) * call.hidden;
  Recurrent layer{.gru = call.gru,
                  .batch_first = call.batch_first,
                  .reverse = direction == 1,
                  .batch = call.batch,
                  .steps = call.steps,
                  .hidden = call.hidden,
                  .gates = builder.make(rows, gates),
                  .result = result,
                  .column = direction * call.hidden,
                  .before = builder.make(rows, call.hidden),
                  .first_state = first[0],
                  .first_cell = first[1]};
  if (call.gru) {
    layer.hidden_gates = builder.make(rows, gates);
    layer.hidden_bias = of.state_bias;
  } else {
    layer.cells = builder.make(rows, call.hidden);
  }
  const bool packs = builder.packs_products(gates * builder.at(x).width);
  builder.emit_product({.out = layer.gates,
                        .a = x,
                        .b = of.input,
                        .bias = gate_bias(builder, call, of),
                        .right_transposed = true},
                       packs);
  layer.packed = builder.packed(of.state, true);
  builder.emit_recurrent(Op::recurrent, layer);
  return layer;
}

/// The gradients of a direction, and what they give to its parameters and inputs.
void add_direction_gradient(Builder& builder, const CellParameters& of, int x, Recurrent layer,
                            int gradient) {
  layer.result_gradient = gradient;
  layer.gates_gradient = builder.make_like(layer.gates);
  layer.hidden_gradient = layer.gru ? builder.make_like(layer.gates) : layer.gates_gradient;
  layer.packed = builder.packed(of.state, false);
  if (layer.first_state >= 0) layer.first_state_gradient = builder.make_like(layer.first_state);
  if (layer.first_cell >= 0) layer.first_cell_gradient = builder.make_like(layer.first_cell);
  builder.emit_recurrent(Op::recurrent_gradient, layer);
  const bool packs = builder.packs_products(builder.at(layer.gates).width * builder.at(x).width);
  const auto add_weights = [&](int weight, int gates, int inputs) {
    builder.contribute(weight, true, [&](int out, bool adds) {
      builder.emit_product({.out = out,
                            .a = gates,
                            .b = inputs,
                            .left_transposed = true,
                            .adds = adds,
                            .plain = Op::weight_product},
                           packs);
    });
  };
  const auto add_bias = [&](int bias, int gates) {
    builder.contribute(bias, true, [&](int out, bool adds) {
      builder.emit({.op = Op::column_sums, .out = out, .a = gates, .adds = adds});
    });
  };
  add_weights(of.input, layer.gates_gradient, x);
  add_weights(of.state, layer.hidden_gradient, layer.before);
  add_bias(of.input_bias, layer.gates_gradient);
  add_bias(of.state_bias, layer.hidden_gradient);
  builder.contribute(x, true, [&](int out, bool adds) {
    builder.emit_product(
        {.out = out, .a = layer.gates_gradient, .b = of.input, .adds = adds, .plain = Op::input_product},
        packs);
  });
  if (layer.first_state >= 0) builder.pass_on(layer.first_state, layer.first_state_gradient);
  if (layer.first_cell >= 0) builder.pass_on(layer.first_cell, layer.first_cell_gradient);
}

/// The states behind the last step of all layers and directions: [layers * directions, batch, hidden].
void set_last_states(Builder& builder, const graph::Node& node, const graph::Value& value,
                     const RecurrentCall& call, const std::vector<Recurrent>& layers) {
  const int all = builder.make(node, value);
  bool needs = false;
  std::vector<std::pair<int, Move>> parts;
  for (size_t number = 0; number < layers.size(); ++number) {
    const Recurrent& layer = layers[number];
    Move last;  // of the states of the layer
    last.dims = {{call.batch, {0, 1, call.batch_first ? call.steps : 1}, 0},
                 {{0, 1, call.hidden}, {0, 1, 0}, 1}};
    const int64_t t = layer.reverse ? 0 : call.steps - 1;
    last.start = call.batch_first ? RowCount{0, 1, t} : call.batch.times(t);
    last.start_column = layer.column;
    const int part = builder.moved(layer.result, last, call.batch, call.hidden);
    Move place;
    place.dims = {{call.batch, {}, 0}, {{0, 1, call.hidden}, {0, 1, 0}, 1}};
    place.start = call.batch.times(static_cast<int64_t>(number));
    builder.emit_move(Op::move_back, all, part, place, false);
    parts.emplace_back(part, place);
    needs = needs || builder.needs_gradient(part);
  }
  builder.set_needs_gradient(all, needs);
  builder.set(value, all);
  builder.on_backward(all, [&builder, parts](int gradient) {
    for (const auto& [part, place] : parts) {
      builder.contribute(part, false,
                         [&](int out, bool) { builder.emit_move(Op::move, out, gradient, place, false); });
    }
  });
}

/// Dropout between layers.
int add_layer_dropout(Builder& builder, const graph::Node& node, int x) {
  const double p = builder.number(node, "dropout");
  if (p == 0 || !builder.flag(node, "train")) return x;
  if (!builder.draws())
    builder.refuse(node,
                   "expected dropout = 0, eval mode or CompileOptions::dropout_seed, got dropout = ", p);
  if (!(p > 0 && p < 1)) builder.refuse(node, "expected 0 <= dropout < 1, got ", p);
  const int y = builder.make_like(x);
  builder.emit_dropout(x, y, p);
  return y;
}

template <bool kGru>
void add_recurrent(Builder& builder, const graph::Node& node) {
  const RecurrentCall call = call_of(builder, node, kGru);
  const graph::Argument& states = node.arg("hx");
  int x = builder.padded(node, "input");
  std::vector<Recurrent> made;
  for (int64_t layer = 0; layer < call.layers; ++layer) {
    if (layer > 0) x = add_layer_dropout(builder, node, x);
    const int result = builder.make(call.batch.times(call.steps), call.directions * call.hidden);
    bool needs = builder.needs_gradient(x);
    std::vector<std::pair<CellParameters, Recurrent>> directions;
    for (int64_t direction = 0; direction < call.directions; ++direction) {
      const int64_t number = layer * call.directions + direction;
      const CellParameters of = parameters_of(builder, node, call, number, builder.at(x).width);
      const std::array<int, 2> first = {
          first_state(builder, node, call, kGru ? states : states.items.at(0), number),
          kGru ? -1 : first_state(builder, node, call, states.items.at(1), number)};
      directions.emplace_back(of, add_direction(builder, call, of, x, result, direction, first));
      for (const int one : {of.input, of.state, of.input_bias, of.state_bias, first[0], first[1]})
        needs = needs || builder.needs_gradient(one);
      made.push_back(directions.back().second);
    }
    builder.set_needs_gradient(result, needs);
    builder.on_backward(result, [&builder, x, directions](int gradient) {
      for (const auto& [of, one] : directions) add_direction_gradient(builder, of, x, one, gradient);
    });
    x = result;
  }
  builder.set(*node.outputs().at(0), x);
  const graph::Value& last = *node.outputs().at(1);
  builder.defer(node, last,
                [&builder, &node, &last, call, made] { set_last_states(builder, node, last, call, made); });
  if (kGru) return;
  builder.defer(node, *node.outputs().at(2), [&builder, &node] {
    builder.refuse(node, "expected the last states of the cells to be read by nobody, got a reader");
  });
}

/// Zeros of the sizes that the graph knows.
void add_zeros(Builder& builder, const graph::Node& node) {
  builder.defer(node, *node.output(), [&builder, &node] {
    const int made = builder.make(node, *node.output());
    builder.emit({.op = Op::fill, .out = made});
    builder.set(*node.output(), made);
  });
}

}  // namespace

void Builder::emit_recurrent(Op op, const Recurrent& layer) {
  built_.plan.recurrents.push_back(layer);
  emit({.op = op, .detail = static_cast<int>(built_.plan.recurrents.size()) - 1});
}

std::vector<OpRow> recurrent_rules() {
  return {{"aten::lstm.input", add_recurrent<false>},
          {"aten::gru.input", add_recurrent<true>},
          {"aten::zeros", add_zeros}};
}

}  // namespace ulp::train::compiled
