// Recurrent layers: a step for each layer and direction, over [N, steps, features]. Where the layer has time
// first, the transpositions before and behind it belong to it; what holds the last states of all layers,
// [layers * directions, N, hidden], belongs to it with what cuts one out.
#include <algorithm>

#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

namespace {

constexpr Form kPlain{DataType::f32, Layout::plain};

bool is_recurrent(const Node& node) {
  return node.is("aten::lstm") || node.is("aten::gru") || node.is("ulp::lstm_dynamic") ||
         node.is("ulp::gru_dynamic");
}

/// Swaps dimensions 0 and 1 of three.
bool swaps_time(const Node& node) {
  if (node.is("aten::transpose")) {
    const int64_t a = int_arg(node, "dim0"), b = int_arg(node, "dim1");
    return (a == 0 || a == -3) != (b == 0 || b == -3) && (a == 1 || a == -2) != (b == 1 || b == -2);
  }
  return node.is("aten::permute") && ints_arg(node, "dims") == std::vector<int64_t>{1, 0, 2};
}

/// A call's arguments, checked.
struct Layers {
  runtime::Op op;
  bool dynamic, bidirectional, biases, batch_first;
  int64_t count;
  int64_t directions() const { return bidirectional ? 2 : 1; }
  /// Tensors of one layer and direction among the parameters.
  size_t stride() const { return (dynamic ? 4 : 2) + (biases ? 2 : 0); }
};

bool is_zero(const graph::Graph& graph, const Value* state) {
  if (state->producer->is("aten::zeros") || state->producer->is("aten::zeros_like")) return true;
  const at::Tensor held = graph.attribute_tensor(state);
  return held.defined() && !held.any().item<bool>();
}

void expect_zero_state(const graph::Graph& graph, const Node& node) {
  const Argument& hx = node.arg("hx");
  const std::vector<Argument> one = {hx};
  for (const Argument& state : hx.kind == Argument::Kind::list ? hx.items : one) {
    if (!state.is_value() || !is_zero(graph, state.value)) {
      unsupported(node, "expected an initial state of zeros (none given)");
    }
  }
}

Layers read_layers(const graph::Graph& graph, const Node& node) {
  const bool lstm = node.is("aten::lstm") || node.is("ulp::lstm_dynamic");
  if (!has_arg(node, "input")) unsupported(node, "expected a batch of whole sequences, got packed ones");
  const Layers layers{.op = lstm ? runtime::Op::lstm : runtime::Op::gru,
                      .dynamic = has_arg(node, "per_tensor"),
                      .bidirectional = bool_arg(node, "bidirectional"),
                      .biases = bool_arg(node, "has_biases"),
                      .batch_first = bool_arg(node, "batch_first"),
                      .count = int_arg(node, "num_layers")};
  if (!layers.dynamic && bool_arg(node, "train") && *number_arg(node, "dropout") > 0) {
    unsupported(node, "expected no dropout when inferring");
  }
  const size_t expected = static_cast<size_t>(layers.count * layers.directions()) * layers.stride();
  const Argument& params = node.arg("params");
  if (params.kind != Argument::Kind::list || params.items.size() != expected) {
    unsupported(node, "expected ", expected, " weights and biases, got ", params.items.size(),
                ": projections (proj_size) have no lowering");
  }
  expect_zero_state(graph, node);
  return layers;
}

/// Adds the constants of one layer and direction, which begin at `first` of the parameters.
void add_constants(Builder& builder, const Node& node, const Layers& layers, size_t first, Step& step) {
  static const std::vector<const char*> kFloat = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
  static const std::vector<const char*> kDynamic = {"weight_ih",       "weight_ih_scale", "weight_hh",
                                                    "weight_hh_scale", "bias_ih",         "bias_hh"};
  const std::vector<const char*>& roles = layers.dynamic ? kDynamic : kFloat;
  for (size_t i = 0; i < layers.stride(); ++i) {
    const Argument& param = node.arg("params").items[first + i];
    const at::Tensor tensor = param.is_value() ? builder.graph().attribute_tensor(param.value) : at::Tensor();
    if (!tensor.defined()) unsupported(node, "expected weights that are parameters, buffers or constants");
    const bool matrix = tensor.dim() == 2;  // biases and scales stay in f32
    const DataType type = tensor.scalar_type() == at::kChar ? DataType::i8
                          : matrix                          ? builder.float_type()
                                                            : DataType::f32;
    step.constants[roles[i]] = builder.constant(param.value->producer->target(), make_constant(tensor, type));
  }
}

/// The sequences [N, steps, features] that the layer reads.
const Value* sequences_of(const Node& node, const Layers& layers) {
  const Value* x = value_arg(node, "input");
  if (layers.batch_first) return x;
  if (!swaps_time(*x->producer)) {
    unsupported(node,
                "expected sequences as [N, steps, features] (batch_first), or time first by transpose(0, 1)");
  }
  return x->producer->args.at(0).value;
}

/// The tensors of one layer: of each direction, and of both side by side.
struct LayerTensors {
  std::vector<int32_t> directions;
  int32_t joined;
};

const std::vector<int64_t>& shape_of_tensor(Builder& builder, int32_t tensor) {
  return builder.plan().tensors[static_cast<size_t>(tensor)].shape;
}

LayerTensors emit_layer(Builder& builder, const Node& node, const Layers& layers, int64_t layer, int32_t x) {
  LayerTensors made;
  std::vector<int64_t> shape = shape_of_tensor(builder, x);
  const std::string name = layer_name(node) + ".l" + std::to_string(layer);
  for (int64_t direction = 0; direction < layers.directions(); ++direction) {
    const bool reverse = direction == 1;
    Step step{.op = layers.op, .name = reverse ? name + "_reverse" : name};
    step.attributes = runtime::RecurrentAttributes{
        .per_tensor = layers.dynamic && bool_arg(node, "per_tensor"), .reverse = reverse};
    const auto index = static_cast<size_t>(layer * layers.directions() + direction);
    add_constants(builder, node, layers, index * layers.stride(), step);
    shape[2] = builder.plan().constants.at(step.constants.at("weight_hh")).shape.at(1);
    step.inputs = {x};
    const std::string tensor = step.name;
    made.directions.push_back(builder.emit(std::move(step), tensor, kPlain, shape));
  }
  made.joined = made.directions[0];
  if (layers.bidirectional) {
    Step step{.op = runtime::Op::concat, .name = name + "_both", .inputs = made.directions};
    shape[2] *= 2;
    made.joined = builder.emit(std::move(step), name, kPlain, shape);
  }
  return made;
}

/// Binds a reader of a result to one step of time of [N, steps, features].
void emit_step_of_time(Builder& builder, const Node& reader, int32_t sequence, int64_t index) {
  const std::vector<int64_t> shape = shape_of_tensor(builder, sequence);
  Step step = step_of(runtime::Op::select, reader);
  step.attributes = runtime::SelectAttributes{index < 0 ? index + shape[1] : index};
  step.inputs = {sequence};
  const Value* made = reader.output();
  builder.bind(made, builder.emit(std::move(step), made->name, kPlain, {shape[0], shape[2]}));
}

/// Readers of a sequence with time first: back to batch first, or one step.
void bind_time_first(Builder& builder, const Node& node, int32_t sequence) {
  for (const Node* reader : builder.graph().users(node.output())) {
    if (swaps_time(*reader)) {
      builder.bind(reader->output(), sequence);
    } else if (reader->is("aten::select") && int_arg(*reader, "dim") == 0) {
      emit_step_of_time(builder, *reader, sequence, int_arg(*reader, "index"));
    } else {
      unsupported(node, "expected transpose(0, 1) or one step y[i] to read what has time first");
    }
  }
}

/// Which of the `count` last states a node cuts out: h_n[i], or all of one.
int64_t state_index(const Node& layer, const Node& reader, int64_t count) {
  if (reader.is("aten::select") && int_arg(reader, "dim") == 0) {
    const int64_t index = int_arg(reader, "index");
    return index < 0 ? index + count : index;
  }
  if (reader.is("aten::squeeze") && has_arg(reader, "dim") && int_arg(reader, "dim") == 0 && count == 1)
    return 0;
  unsupported(layer, "expected its last states to be read one by one, as h_n[i]");
}

/// Last states are the sequences at their last step, or, backwards, at their first.
void bind_last_states(Builder& builder, const Node& node, const Layers& layers,
                      const std::vector<int32_t>& sequences) {
  for (const Node* reader : builder.graph().users(node.output(1))) {
    const int64_t index = state_index(node, *reader, static_cast<int64_t>(sequences.size()));
    const bool backwards = layers.bidirectional && index % 2 == 1;
    emit_step_of_time(builder, *reader, sequences.at(static_cast<size_t>(index)), backwards ? 0 : -1);
  }
}

}  // namespace

bool belongs_to_recurrent(const graph::Graph& graph, const Node& node) {
  const Value* x = node.args.at(0).value;
  if (x == nullptr) return false;
  if (is_recurrent(*x->producer) && (x->index != 0 || !bool_arg(*x->producer, "batch_first"))) return true;
  const std::vector<Node*> users = graph.users(node.output());
  return swaps_time(node) && std::ranges::all_of(users, [](const Node* user) { return is_recurrent(*user); });
}

namespace {

void lower_recurrent(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Layers layers = read_layers(builder.graph(), node);
  if (node.outputs().size() == 3 && !builder.graph().users(node.output(2)).empty()) {
    unsupported(node, "expected nobody to read the last cell states (c_n)");
  }
  int32_t x = builder.as(node, sequences_of(node, layers), kPlain);
  std::vector<int32_t> sequences;
  for (int64_t layer = 0; layer < layers.count; ++layer) {
    const LayerTensors made = emit_layer(builder, node, layers, layer, x);
    sequences.insert(sequences.end(), made.directions.begin(), made.directions.end());
    x = made.joined;
  }
  if (layers.batch_first) {
    builder.bind(node.output(), x);
  } else {
    bind_time_first(builder, node, x);
  }
  bind_last_states(builder, node, layers, sequences);
}

void lower_zeros(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const std::vector<Node*> users = builder.graph().users(node.output());
  if (std::ranges::all_of(users, [](const Node* user) { return is_recurrent(*user); }))
    return;  // a first state
  node.is("aten::zeros") ? lower_filled(builder, group) : lower_pointwise(builder, group);
}

}  // namespace

LoweringTable recurrent_lowerings() {
  static constexpr Lowering kTable[] = {
      {"aten::lstm", lower_recurrent},        {"aten::gru", lower_recurrent},
      {"ulp::lstm_dynamic", lower_recurrent}, {"ulp::gru_dynamic", lower_recurrent},
      {"aten::zeros", lower_zeros},           {"aten::zeros_like", lower_zeros}};
  return kTable;
}

}  // namespace ulp::lowering
