// LSTM and GRU layers: ONNX has one operator a layer, with the gates in another order.
#include <torch/types.h>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Argument;
using graph::Node;

/// LibTorch's LSTM has the gates i f g o, ONNX i o f g; its GRU r z n, ONNX z r n.
struct RecurrentKind {
  const char* op;
  std::vector<int64_t> gates;
  bool cell;
};

const Argument& item(const Node& node, const char* argument, size_t i) {
  const Argument& list = node.arg(argument);
  if (list.kind != Argument::Kind::list || i >= list.items.size() || !list.items[i].is_value())
    refuse(node, "expected '", argument, "' to be a list of tensors");
  return list.items[i];
}

/// What a stack of layers is made of.
struct Stack {
  int64_t layers = 1, directions = 1;
  bool biases = true;
  size_t a_direction = 4;  ///< parameters
};

Stack stack_of(const Node& node) {
  const bool biases = bool_arg(node, "has_biases");
  const Stack stack{.layers = int_arg(node, "num_layers"),
                    .directions = bool_arg(node, "bidirectional") ? 2 : 1,
                    .biases = biases,
                    .a_direction = biases ? 4U : 2U};
  const auto directions = static_cast<size_t>(stack.layers * stack.directions);
  const size_t given = node.arg("params").items.size();
  if (given == directions * (stack.a_direction + 1))
    refuse(node,
           "expected a layer without a projection (proj_size 0): ONNX has none that projects its states");
  if (given != directions * stack.a_direction)
    refuse(node, "expected ", directions * stack.a_direction, " parameters, got ", given);
  return stack;
}

/// The part-th parameter of each direction of a layer, gates in ONNX's order, and the name of the first.
std::pair<at::Tensor, std::string> parameter(Builder& builder, const Node& node, const RecurrentKind& kind,
                                             const Stack& stack, int64_t layer, size_t part) {
  std::vector<at::Tensor> rows;
  std::string name;
  for (int64_t direction = 0; direction < stack.directions; ++direction) {
    const auto first = static_cast<size_t>(layer * stack.directions + direction) * stack.a_direction;
    const graph::Value* value = item(node, "params", first + part).value;
    const at::Tensor tensor = builder.graph().attribute_tensor(value);
    if (!tensor.defined()) refuse(node, "expected parameters that are not computed");
    if (name.empty()) name = value->producer->target();
    const std::vector<at::Tensor> gates = tensor.detach().chunk(std::ssize(kind.gates));
    std::vector<at::Tensor> ordered;
    for (const int64_t gate : kind.gates) ordered.push_back(gates.at(static_cast<size_t>(gate)));
    rows.push_back(torch::cat(ordered));
  }
  return {torch::stack(rows), name + ".onnx"};
}

/// Layer `layer` of an initial state.
std::string state(Builder& builder, const Node& node, const graph::Value* value, const Stack& stack,
                  int64_t layer) {
  const std::string& all = builder.name_of(value);
  if (stack.layers == 1) return all;
  return builder.call(node, "Slice",
                      {all, builder.ints({layer * stack.directions}),
                       builder.ints({(layer + 1) * stack.directions}), builder.ints({0})});
}

/// One layer over x [time, batch, features]; returns its outputs.
Names run_layer(Builder& builder, const Node& node, const RecurrentKind& kind, const Stack& stack,
                int64_t layer, const std::string& x) {
  const auto [input_weight, input_name] = parameter(builder, node, kind, stack, layer, 0);
  const auto [state_weight, state_name] = parameter(builder, node, kind, stack, layer, 1);
  Names inputs = {x, builder.constant(input_weight, input_name), builder.constant(state_weight, state_name),
                  "", ""};
  if (stack.biases) {
    const auto [input_bias, bias_name] = parameter(builder, node, kind, stack, layer, 2);
    const at::Tensor both =
        torch::cat({input_bias, parameter(builder, node, kind, stack, layer, 3).first}, 1);
    inputs[3] = builder.constant(both, bias_name);
  }
  if (kind.cell) {
    inputs.push_back(state(builder, node, item(node, "hx", 0).value, stack, layer));
    inputs.push_back(state(builder, node, item(node, "hx", 1).value, stack, layer));
  } else {
    inputs.push_back(state(builder, node, value_arg(node, "hx"), stack, layer));
  }
  Attributes attributes = {{"hidden_size", state_weight.size(2)},
                           {"direction", stack.directions == 2 ? "bidirectional" : "forward"}};
  if (!kind.cell) attributes.push_back({"linear_before_reset", int64_t{1}});
  return builder.calls(node, kind.op, kind.cell ? 3 : 2, std::move(inputs), std::move(attributes));
}

void run_stack(Builder& builder, const Node& node, const RecurrentKind& kind) {
  if (!has_arg(node, "batch_first")) refuse(node, "expected an input that is no packed sequence");
  if (rank_of(node, *value_arg(node, "input")) != 3) refuse(node, "expected a batch of sequences");
  const Stack stack = stack_of(node);
  const bool batch_first = bool_arg(node, "batch_first");
  std::string x = builder.in(node, "input");
  if (batch_first) x = transposed(builder, node, x, {1, 0, 2});
  std::vector<Names> states(kind.cell ? 2 : 1);
  for (int64_t layer = 0; layer < stack.layers; ++layer) {
    const Names made = run_layer(builder, node, kind, stack, layer, x);
    for (size_t i = 0; i < states.size(); ++i) states[i].push_back(made[i + 1]);
    // [time, directions, batch, hidden] -> [time, batch, directions * hidden]
    const std::string order = transposed(builder, node, made[0], {0, 2, 1, 3});
    const std::string target = builder.ints({0, 0, -1});
    const bool last = layer + 1 == stack.layers;
    if (last && !batch_first) {
      builder.result(node, "Reshape", {order, target});
    } else {
      x = builder.call(node, "Reshape", {order, target});
    }
  }
  if (batch_first) builder.result(node, "Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
  for (size_t i = 0; i < states.size(); ++i)
    builder.result(node, "Concat", states[i], {{"axis", int64_t{0}}}, i + 1);
}

void lstm(Builder& builder, const Node& node) {
  run_stack(builder, node, {"LSTM", {0, 3, 1, 2}, true});
}

void gru(Builder& builder, const Node& node) {
  run_stack(builder, node, {"GRU", {1, 0, 2}, false});
}

}  // namespace

ConverterTable recurrent_converters() {
  static constexpr Converter kTable[] = {{"aten::lstm", lstm}, {"aten::gru", gru}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
