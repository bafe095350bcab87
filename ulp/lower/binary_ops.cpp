// Signs as bits, and the layers that read them: one step each with what is fused to it.
#include "ulp/quant/operators/binary_ops.h"

#include "ulp/lower/binary_graph.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

namespace {

constexpr int64_t kBitsOfByte = 8;

/// The dimension of a value's channels where it is held as bits.
size_t channel_axis(const std::vector<int64_t>& shape) {
  return shape.size() == 4 ? 1 : shape.size() - 1;
}

/// What a tensor of bits is, of signs of this shape.
std::vector<int64_t> shape_of_bits(std::vector<int64_t> shape) {
  int64_t& channels = shape[channel_axis(shape)];
  channels = (channels + kBitsOfByte - 1) / kBitsOfByte;
  return shape;
}

void emit_bits(Builder& builder, const Node& node, Step step) {
  const Value* signs = node.output();
  const std::vector<int64_t> shape = shape_of(node, *signs);
  const Form form{DataType::u8, inner_layout(shape.size())};
  builder.bind_bits(signs, builder.emit(std::move(step), signs->name, form, shape_of_bits(shape)));
}

/// Adds "threshold" of this type, and "flip" where a bit is set.
void add_thresholds(Builder& builder, const Node& node, DataType type, Step& step) {
  const at::ScalarType dtype = type == DataType::i32 ? at::kInt : at::kFloat;
  if (attribute_arg(builder.graph(), node, "threshold").scalar_type() != dtype)
    unsupported(node, "expected thresholds in ", dtype);
  add_float_constant(builder, node, "threshold", "threshold", step, type);
  const at::Tensor flip = attribute_arg(builder.graph(), node, "flip");
  if (!flip.any().item<bool>()) return;
  const at::Tensor signs = flip.to(at::kFloat).neg().unsqueeze(0);
  step.constants["flip"] = builder.constant(node.arg("flip").value->producer->target(),
                                            make_constant(quant::pack_signs(signs).flatten(), DataType::u8));
}

void lower_signs(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = node.args.at(0).value;
  const std::vector<int64_t> shape = shape_of(node, *x);
  if (shape.size() < 2 || shape.size() == 5)
    unsupported(node, "expected signs [N, C, H, W] or [N, ..., C], got ", shape.size(), " dimensions");
  if (has_arg(node, "dim") && int_arg(node, "dim") != static_cast<int64_t>(channel_axis(shape)))
    unsupported(node, "expected thresholds of the channels");
  Step step = step_of(runtime::Op::binarize, node);
  if (has_arg(node, "threshold")) add_thresholds(builder, node, DataType::f32, step);
  step.inputs = {builder.as(node, x, {DataType::f32, inner_layout(shape.size())})};
  emit_bits(builder, node, std::move(step));
}

/// The step with its weight, input and window.
Step layer_step(Builder& builder, const Node& node) {
  const bool conv = node.op().starts_with("ulp::binary_conv2d");
  Step step{.op = conv ? runtime::Op::binary_conv : runtime::Op::binary_linear, .name = layer_name(node)};
  const at::Tensor weight = attribute_arg(builder.graph(), node, "weight");
  if (weight.dim() != (conv ? 4 : 2) || !weight.abs().eq(1).all().item<bool>())
    unsupported(node, "expected a weight of +1 and -1");
  step.constants["weight"] = builder.constant(node.arg("weight").value->producer->target(),
                                              make_constant(quant::pack_signs(weight), DataType::u8));
  step.inputs = {builder.bits_of(node, value_arg(node, "signs"))};
  if (!conv) {
    step.attributes = runtime::BinaryLinearAttributes{.channels = weight.size(1)};
    return step;
  }
  runtime::BinaryConvAttributes attributes{
      .window = make_window({weight.size(2), weight.size(3)}, pair_arg(node, "stride"),
                            pair_arg(node, "padding"), pair_arg(node, "dilation")),
      .channels = weight.size(1)};
  using Padding = decltype(attributes.padding);
  attributes.padding = bool_arg(node, "padding_one") ? Padding::one : Padding::zero;
  step.attributes = attributes;
  return step;
}

void lower_layer(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  Step step = layer_step(builder, node);
  add_float_constant(builder, node, "scale", "scale", step);
  add_float_constant(builder, node, "bias", "bias", step);
  const Layout layout = inner_layout(shape_of(node, *node.output()).size());
  emit_compute(builder, group, std::move(step), DataType::f32, layout);
}

void lower_layer_signs(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  Step step = layer_step(builder, node);
  add_thresholds(builder, node, DataType::i32, step);
  emit_bits(builder, node, std::move(step));
}

}  // namespace

LoweringTable binary_lowerings() {
  static constexpr Lowering kTable[] = {{"ulp::binarize", lower_signs},
                                        {"ulp::threshold_signs", lower_signs},
                                        {"ulp::binary_conv2d", lower_layer},
                                        {"ulp::binary_linear", lower_layer},
                                        {"ulp::binary_conv2d_signs", lower_layer_signs},
                                        {"ulp::binary_linear_signs", lower_layer_signs}};
  return kTable;
}

}  // namespace ulp::lowering
