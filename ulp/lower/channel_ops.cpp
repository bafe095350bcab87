// Ops that join, cut and reorder channels.
#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Step;

namespace {

/// Throws Unsupported unless `dim` is the dimension that the engine's ops on channels work on.
void expect_channels(const Node& node, size_t rank) {
  int64_t dim = int_arg(node, "dim");
  if (dim < 0) dim += static_cast<int64_t>(rank);
  const int64_t channels = rank == 4 ? 1 : static_cast<int64_t>(rank) - 1;
  if (rank < 2 || dim != channels) {
    unsupported(node, "expected dimension 1 of an image or the last of two or more, got dimension ", dim,
                " of ", rank);
  }
}

/// Where the first result of a node that cuts starts.
int64_t first_channel(const Node& node, int64_t channels) {
  int64_t begin = 0;
  if (node.is("aten::narrow")) begin = int_arg(node, "start");
  if (node.is("aten::slice")) {
    if (int_arg(node, "step") != 1) unsupported(node, "expected a step of 1");
    if (!node.arg("start").is_none()) begin = int_arg(node, "start");
  }
  return begin < 0 ? begin + channels : begin;
}

void lower_concat(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const graph::Argument& tensors = node.arg("tensors");
  if (tensors.kind != graph::Argument::Kind::list)
    unsupported(node, "expected a list of tensors of the graph");
  const std::vector<int64_t> shape = shape_of(node, *group.result);
  expect_channels(node, shape.size());
  bool u8 = group.quantize != nullptr;
  for (const graph::Argument& tensor : tensors.items) {
    if (!tensor.is_value()) unsupported(node, "expected a list of tensors of the graph");
    u8 = u8 && builder.form_of(node, tensor.value).type == DataType::u8;
  }
  Form form{builder.float_type(), inner_layout(shape.size())};
  if (u8) {
    form = quantizer_form(builder.graph(), *group.quantize);
    form.layout = inner_layout(shape.size());
  }
  Step step = step_of(runtime::Op::concat, node);
  for (const graph::Argument& tensor : tensors.items) {
    // Codes of any scale: the step brings them to its own.
    const Form own = u8 ? kept_form(builder, node, tensor.value) : form;
    step.inputs.push_back(builder.as(node, tensor.value, own));
  }
  emit_same(builder, group, std::move(step), form);
}

void lower_slices(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  const std::vector<int64_t> shape = shape_of(node, *x);
  expect_channels(node, shape.size());
  const size_t axis = shape.size() == 4 ? 1 : shape.size() - 1;
  const Form form = kept_form(builder, node, x);
  int64_t begin = first_channel(node, shape[axis]);
  for (const auto& part : node.outputs()) {
    const std::vector<int64_t> part_shape = shape_of(node, *part);
    if (!builder.graph().users(part.get()).empty()) {
      Step step = step_of(runtime::Op::slice, node);
      step.attributes = runtime::SliceAttributes{.begin = begin, .length = part_shape[axis]};
      step.inputs = {builder.as(node, x, form)};
      builder.bind(part.get(), builder.emit(std::move(step), part->name, form, part_shape));
    }
    begin += part_shape[axis];
  }
}

void lower_channel_shuffle(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  const size_t rank = shape_of(node, *x).size();
  if (rank != 4) unsupported(node, "expected an input [N, C, H, W], got ", rank, " dimensions");
  Step step = step_of(runtime::Op::channel_shuffle, node);
  step.attributes = runtime::ShuffleAttributes{int_arg(node, "groups")};
  const Form form = kept_form(builder, node, x);
  step.inputs = {builder.as(node, x, form)};
  emit_same(builder, group, std::move(step), form);
}

}  // namespace

LoweringTable channel_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::cat", lower_concat},
                                        {"aten::chunk", lower_slices},
                                        {"aten::split", lower_slices},
                                        {"aten::split_with_sizes", lower_slices},
                                        {"aten::slice", lower_slices},
                                        {"aten::narrow", lower_slices},
                                        {"aten::channel_shuffle", lower_channel_shuffle}};
  return kTable;
}

}  // namespace ulp::lowering
