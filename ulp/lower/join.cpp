// Tensors joined along any dimension, and what adds to a tensor around it or rolls it.
#include <algorithm>
#include <cmath>
#include <set>

#include "ulp/lower/ids.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Op;
using runtime::PadAttributes;
using runtime::Step;

namespace {

/// The tensors of cat, in order.
std::vector<const Value*> operands_of(const Node& node) {
  const Argument& tensors = node.arg("tensors");
  if (tensors.kind != Argument::Kind::list) unsupported(node, "expected a list of tensors of the graph");
  std::vector<const Value*> values;
  for (const Argument& tensor : tensors.items) {
    if (!tensor.is_value()) unsupported(node, "expected a list of tensors of the graph");
    values.push_back(tensor.value);
  }
  return values;
}

/// Along the channels in the layout in which they lie together; along others in plain order where all are. Volumes
/// as the first one lies.
Layout layout_of(Builder& builder, const Node& node, const std::vector<const Value*>& values, size_t rank,
                 int64_t dim) {
  if (rank == 5) return builder.layout_of(node, values[0]);
  if (dim == 1) return inner_layout(rank);
  const bool plain = std::ranges::all_of(
      values, [&](const Value* value) { return builder.form_of(node, value).layout == Layout::plain; });
  return plain ? Layout::plain : inner_layout(rank);
}

/// The type in which floats are joined; of integers that of those that are held as such, else f32. Numbers
/// of steps become i64 but not i32: those of 32 bits are then joined in f32.
DataType joined_type(Builder& builder, const Node& node, const std::vector<const Value*>& values) {
  if (!at::isIntegralType(node.output()->meta->dtype, false)) return result_type(builder, node.output());
  std::set<DataType> held;
  for (const Value* value : values)
    held.insert(holds_integers(builder, node, value) ? builder.form_of(node, value).type : DataType::f32);
  if (held.size() == 1) return *held.begin();
  return held.contains(DataType::i32) ? DataType::f32 : DataType::i64;
}

/// The last of one or more steps that join so many tensors.
Step join(Builder& builder, const Node& node, std::vector<int32_t> inputs, int64_t axis, const Form& form) {
  constexpr size_t kMost = 64;
  Step step = step_of(Op::concat, node);
  step.attributes = runtime::ConcatAttributes{axis};
  while (inputs.size() > kMost) {
    step.inputs.assign(inputs.begin(), inputs.begin() + kMost);
    const std::vector<int64_t> shape = builder.plan().output_shape(step);
    inputs.erase(inputs.begin(), inputs.begin() + kMost - 1);
    inputs[0] = builder.emit(step, node.output()->name + ".part", form, shape);
  }
  step.inputs = std::move(inputs);
  return step;
}

void lower_concat(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const std::vector<const Value*> values = operands_of(node);
  if (values.size() == 1) {
    builder.alias(node.output(), values[0]);
    return finish_quantize(builder, group);
  }
  const std::vector<int64_t> shape = shape_of(node, *group.result);
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t dim = int_arg(node, "dim");
  dim += dim < 0 ? rank : 0;
  if (dim == 0) unsupported(node, "expected to join along another dimension than the batch");
  bool u8 = group.quantize != nullptr;
  for (const Value* value : values) u8 = u8 && builder.form_of(node, value).type == DataType::u8;
  Form form{joined_type(builder, node, values)};
  if (u8) form = quantizer_form(builder.graph(), *group.quantize);
  form.layout = layout_of(builder, node, values, shape.size(), dim);
  std::vector<int32_t> inputs;
  for (const Value* value : values) {
    // Codes of any scale: the step brings them to its own.
    Form own = u8 ? builder.form_of(node, value) : form;
    own.layout = form.layout;
    const bool in_float = form.type == DataType::f32 && holds_integers(builder, node, value);
    if (in_float && form.layout != Layout::plain) unsupported(node, "expected integers in plain order");
    inputs.push_back(in_float ? exact_numbers(builder, node, value) : builder.as(node, value, own));
  }
  const bool innermost = rank == 4 || form.layout == Layout::nhwc;
  const bool channels = innermost ? dim == 1 : dim == rank - 1;
  emit_same(builder, group, join(builder, node, std::move(inputs), channels ? 0 : dim, form), form);
}

/// The sides of a list that begins at the last dimension: left, right, top, bottom, ...
PadAttributes sides_of(const Node& node, const std::vector<int64_t>& list, size_t rank) {
  PadAttributes attributes;
  attributes.sides.resize(rank - 1);
  if (list.size() % 2 != 0 || list.size() > 2 * rank)
    unsupported(node, "expected pairs of numbers to pad by");
  for (size_t i = 0; i < list.size() / 2; ++i) {
    if (i + 1 < rank) {
      attributes.sides[rank - 2 - i] = {list[2 * i], list[2 * i + 1]};
    } else if (list[2 * i] != 0 || list[2 * i + 1] != 0) {
      unsupported(node, "expected nothing to be added to the batch");
    }
  }
  return attributes;
}

kernels::PadMode pad_mode_of(const Node& node) {
  std::string mode = "constant";
  if (node.is("aten::pad") && !node.arg("mode").is_none()) mode = node.arg("mode").literal.toStringRef();
  if (node.op().starts_with("aten::reflection")) mode = "reflect";
  if (node.op().starts_with("aten::replication")) mode = "replicate";
  const std::optional<kernels::PadMode> known = from_word<kernels::PadMode>(mode);
  if (!known) unsupported(node, "expected a known mode, got '", mode, "'");
  return *known;
}

void emit_pad(Builder& builder, const Group& group, PadAttributes attributes) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  Form form = kept_form(builder, node, x);
  form.layout = builder.layout_of(node, x);
  const bool number = attributes.mode == kernels::PadMode::constant && attributes.value != 0;
  if (form.type == DataType::u8 && number) form = {builder.float_type(), form.layout};
  Step step = step_of(Op::pad, node);
  step.attributes = std::move(attributes);
  step.inputs = {builder.as(node, x, form)};
  emit_same(builder, group, std::move(step), form);
}

void lower_pad(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const size_t rank = shape_of(node, *value_arg(node, "self")).size();
  PadAttributes attributes = sides_of(node, ints_arg(node, has_arg(node, "pad") ? "pad" : "padding"), rank);
  attributes.mode = pad_mode_of(node);
  const bool cuts = std::ranges::any_of(
      attributes.sides, [](const runtime::PadSides& side) { return side.before < 0 || side.after < 0; });
  if (cuts && attributes.mode == kernels::PadMode::circular)
    unsupported(node, "expected sides of a circular pad that add, got one that cuts off");
  if (has_arg(node, "value")) attributes.value = static_cast<float>(number_arg(node, "value").value_or(0));
  if (!std::isfinite(attributes.value)) unsupported(node, "expected a finite number, got ", attributes.value);
  emit_pad(builder, group, std::move(attributes));
}

/// What leaves at one end comes in at the other: as much added before as is cut off behind.
void lower_roll(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const std::vector<int64_t> shape = shape_of(node, *value_arg(node, "self"));
  const std::vector<int64_t> shifts = ints_arg(node, "shifts"), dims = ints_arg(node, "dims");
  if (dims.empty() || dims.size() != shifts.size()) {
    unsupported(node, "expected the dimensions to roll, got none: the batch would be mixed");
  }
  PadAttributes attributes{.sides = {}, .mode = kernels::PadMode::circular, .value = 0};
  attributes.sides.resize(shape.size() - 1);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[i] + (dims[i] < 0 ? static_cast<int64_t>(shape.size()) : 0);
    if (dim == 0) unsupported(node, "expected to roll other dimensions than the batch");
    const int64_t size = shape.at(static_cast<size_t>(dim));
    runtime::PadSides& sides = attributes.sides.at(static_cast<size_t>(dim) - 1);
    sides.before = ((sides.before + shifts[i]) % size + size) % size;
    sides.after = -sides.before;
  }
  emit_pad(builder, group, std::move(attributes));
}

}  // namespace

LoweringTable join_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::cat", lower_concat},
                                        {"aten::pad", lower_pad},
                                        {"aten::constant_pad_nd", lower_pad},
                                        {"aten::reflection_pad1d", lower_pad},
                                        {"aten::reflection_pad2d", lower_pad},
                                        {"aten::reflection_pad3d", lower_pad},
                                        {"aten::replication_pad1d", lower_pad},
                                        {"aten::replication_pad2d", lower_pad},
                                        {"aten::replication_pad3d", lower_pad},
                                        {"aten::roll", lower_roll}};
  return kTable;
}

}  // namespace ulp::lowering
