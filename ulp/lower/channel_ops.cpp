// Ops that cut and reorder channels.
#include <algorithm>

#include "ulp/lower/ops.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::Step;

int64_t first_index(const Node& node, int64_t size) {
  int64_t begin = 0;
  if (node.is("aten::narrow") || (node.is("aten::slice") && !node.arg("start").is_none())) {
    begin = int_arg(node, "start");
  }
  return std::clamp<int64_t>(begin < 0 ? begin + size : begin, 0, size);
}

void lower_slices(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  const std::vector<int64_t> shape = shape_of(node, *x);
  const size_t axis = shape.size() == 4 ? 1 : shape.size() - 1;
  const Form form = kept_form(builder, node, x);
  int64_t begin = first_index(node, shape[axis]);
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

namespace {

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
  static constexpr Lowering kTable[] = {{"aten::channel_shuffle", lower_channel_shuffle}};
  return kTable;
}

}  // namespace ulp::lowering
