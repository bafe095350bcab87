// Norms over parts of an item: layer norm, group norm, instance norm.
#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::Layout;
using runtime::Step;

namespace {

void lower_layer_norm(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "input");
  if (shape_of(node, *x).size() < 2 || ints_arg(node, "normalized_shape").size() != 1) {
    unsupported(node, "expected to normalise the last of two or more dimensions");
  }
  Step step = step_of(runtime::Op::layer_norm, node);
  step.name = layer_name(node);
  step.attributes = runtime::LayerNormAttributes{static_cast<float>(*number_arg(node, "eps"))};
  add_float_constant(builder, node, "weight", "weight", step);
  add_float_constant(builder, node, "bias", "bias", step);
  step.inputs = {builder.as(node, x, read_form(builder, node, x, Layout::plain))};
  emit_same(builder, group, std::move(step), result_form(builder, group, Layout::plain));
}

/// And instance norm, in which every channel is a group.
void lower_group_norm(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "input");
  const std::vector<int64_t> shape = shape_of(node, *x);
  if (shape.size() < 3) unsupported(node, "expected an input [N, C, ...] of 3 or more dimensions");
  const bool instance = node.is("aten::instance_norm");
  if (instance && !(node.arg("running_mean").is_none() && node.arg("running_var").is_none())) {
    unsupported(node, "expected an instance norm without running statistics");
  }
  Step step = step_of(runtime::Op::group_norm, node);
  step.name = layer_name(node);
  step.attributes = runtime::GroupNormAttributes{instance ? shape[1] : int_arg(node, "num_groups"),
                                                 static_cast<float>(*number_arg(node, "eps"))};
  add_float_constant(builder, node, "weight", "weight", step);
  add_float_constant(builder, node, "bias", "bias", step);
  const Layout layout = builder.layout_of(node, x);
  step.inputs = {builder.as(node, x, read_form(builder, node, x, layout))};
  emit_same(builder, group, std::move(step), result_form(builder, group, layout));
}

}  // namespace

LoweringTable norm_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::layer_norm", lower_layer_norm},
                                        {"aten::group_norm", lower_group_norm},
                                        {"aten::instance_norm", lower_group_norm}};
  return kTable;
}

}  // namespace ulp::lowering
