// Recurrent layers: a step for each layer and direction, over [N, steps, features]. Sequences with time first, and the
// states of all layers, [layers * directions, N, hidden], are views of what the steps take and give.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>

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

Layers read_layers(const Node& node) {
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

/// The sequences [N, steps, features] that the first layer reads.
int32_t emit_sequences(Builder& builder, const Node& node, const Layers& layers) {
  const Value* x = value_arg(node, "input");
  if (layers.batch_first) return builder.as(node, x, kPlain);
  const StridedView turned = permuted(builder.view_of(node, x), {1, 0, 2});
  return builder.emit_view_as(node, turned, kPlain, x->name + ".batch_first");
}

/// The values of the first states, one of each kind; none where all are zeros.
std::vector<const Value*> first_states(const Node& node, const graph::Graph& graph) {
  const Argument& hx = node.arg("hx");
  const std::vector<Argument> one = {hx};
  std::vector<const Value*> states;
  for (const Argument& state : hx.kind == Argument::Kind::list ? hx.items : one) {
    if (!state.is_value()) unsupported(node, "expected first states that are tensors");
    states.push_back(state.value);
  }
  const bool zeros = std::ranges::all_of(states, [&](const Value* state) { return is_zero(graph, state); });
  return zeros ? std::vector<const Value*>{} : states;
}

/// Zeros [N, hidden] for the sequences `x`.
int32_t emit_zero_state(Builder& builder, const Value* state, int64_t hidden, int32_t x) {
  const bool rows = builder.plan().tensors[static_cast<size_t>(x)].times > 1;
  Step step{.op = runtime::Op::constant, .name = state->name, .inputs = {rows ? x : builder.batch_source()}};
  step.constants["value"] =
      builder.constant(state->name + ".value", make_constant(at::zeros({hidden}), DataType::f32));
  return builder.emit(std::move(step), state->name, kPlain, {runtime::kBatch, hidden});
}

/// Of a value [layers * directions, N, hidden] the state that the index names, [N, hidden].
int32_t emit_first_state(Builder& builder, const Node& node, const Value* state, int64_t index, int32_t x) {
  if (is_zero(builder.graph(), state))
    return emit_zero_state(builder, state, state->meta->sizes.at(2).offset, x);
  const std::optional<StridedView> one = picked(builder.view_of(node, state), 0, index);
  if (!one || one->dims.at(0).empty() || !one->dims[0][0].is_batch())
    unsupported(node, "expected first states [layers, N, hidden]");
  return builder.emit_view_as(node, *one, kPlain, state->name + "." + std::to_string(index));
}

StridedView view_of_tensor(Builder& builder, int32_t tensor) {
  return whole_view(tensor, builder.plan().tensors[static_cast<size_t>(tensor)]);
}

/// What the step of one layer and direction gives.
struct Direction {
  bool reverse;
  StridedView sequence;        ///< [N, steps, hidden]
  StridedView last_h, last_c;  ///< [N, hidden]; the second where the step gives it
};

/// The step of a layer and direction, the `index`th of the call.
Direction emit_direction(Builder& builder, const Node& node, const Layers& layers, int64_t index, int32_t x) {
  const bool reverse = layers.bidirectional && index % 2 == 1;
  const bool last_c = layers.op == runtime::Op::lstm && !builder.graph().users(node.output(2)).empty();
  Step step{.op = layers.op,
            .name = layer_name(node) + ".l" + std::to_string(index / layers.directions()) +
                    (reverse ? "_reverse" : "")};
  step.attributes = runtime::RecurrentAttributes{
      .per_tensor = layers.dynamic && bool_arg(node, "per_tensor"), .reverse = reverse, .last_c = last_c};
  add_constants(builder, node, layers, static_cast<size_t>(index) * layers.stride(), step);
  step.inputs = {x};
  for (const Value* state : first_states(node, builder.graph()))
    step.inputs.push_back(emit_first_state(builder, node, state, index, x));
  const std::string name = step.name;
  std::vector<int64_t> shape = builder.plan().tensors[static_cast<size_t>(x)].shape;
  const int64_t steps = shape[1];
  shape[1] += last_c ? 1 : 0;
  shape[2] = builder.plan().constants.at(step.constants.at("weight_hh")).shape.at(1);
  const int32_t tensor = builder.emit(std::move(step), name, kPlain, shape);
  const StridedView whole = view_of_tensor(builder, tensor);
  return {.reverse = reverse,
          .sequence = narrowed(whole, 1, 0, steps, 1).value(),
          .last_h = picked(whole, 1, reverse ? 0 : steps - 1).value(),
          .last_c = last_c ? picked(whole, 1, steps).value() : StridedView{}};
}

/// Two or more tensors of equal sizes side by side in the last dimension.
int32_t emit_side_by_side(Builder& builder, const Node& node, const std::vector<StridedView>& views,
                          const std::string& name) {
  Step step{.op = runtime::Op::concat, .name = name};
  for (const StridedView& view : views)
    step.inputs.push_back(
        builder.emit_view_as(node, view, kPlain, name + "." + std::to_string(step.inputs.size())));
  std::vector<int64_t> shape = {runtime::kBatch};
  for (size_t d = 1; d < views[0].dims.size(); ++d) shape.push_back(size_of(views[0], d).value());
  shape.back() *= static_cast<int64_t>(views.size());
  return builder.emit(std::move(step), name, kPlain, shape);
}

/// A result [layers * directions, N, hidden] of what each has in `last`.
void bind_last_states(Builder& builder, const Node& node, const std::vector<Direction>& all,
                      StridedView Direction::*last, size_t result) {
  const Value* states = node.output(result);
  if (builder.graph().users(states).empty()) return;
  std::vector<StridedView> views;
  for (const Direction& one : all) views.push_back(one.*last);
  if (views.size() > 1) {
    const auto count = static_cast<int64_t>(views.size());
    const int64_t hidden = size_of(views[0], views[0].dims.size() - 1).value();
    const StridedView joined = view_of_tensor(builder, emit_side_by_side(builder, node, views, states->name));
    const auto size = [](int64_t fixed) { return graph::SizeExpr{0, 1, fixed}; };
    const StridedView apart = reshaped(joined, {first_size_of(joined), size(count), size(hidden)}).value();
    return builder.bind_view(states, permuted(apart, {1, 0, 2}));
  }
  views[0].dims.insert(views[0].dims.begin(), std::vector<Piece>{});
  builder.bind_view(states, views[0]);
}

void lower_recurrent(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Layers layers = read_layers(node);
  int32_t x = emit_sequences(builder, node, layers);
  std::vector<Direction> all;
  StridedView sequence;
  for (int64_t index = 0; index < layers.count * layers.directions(); ++index) {
    all.push_back(emit_direction(builder, node, layers, index, x));
    if (layers.bidirectional && !all.back().reverse) continue;
    sequence = all.back().sequence;
    if (layers.bidirectional) {
      const std::string name = layer_name(node) + ".l" + std::to_string(index / 2);
      const Direction& forwards = all[all.size() - 2];
      sequence =
          view_of_tensor(builder, emit_side_by_side(builder, node, {forwards.sequence, sequence}, name));
    }
    if (index + 1 < layers.count * layers.directions())
      x = builder.emit_view_as(node, sequence, kPlain, layer_name(node) + ".sequence");
  }
  if (!layers.batch_first) {
    builder.bind_view(node.output(), permuted(sequence, {1, 0, 2}));
  } else if (!builder.graph().users(node.output()).empty()) {
    builder.bind(node.output(), builder.emit_view_as(node, sequence, kPlain, node.output()->name));
  }
  bind_last_states(builder, node, all, &Direction::last_h, 1);
  if (layers.op == runtime::Op::lstm) bind_last_states(builder, node, all, &Direction::last_c, 2);
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
