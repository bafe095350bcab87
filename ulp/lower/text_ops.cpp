// Ops of networks over tokens: embedding, one position of a text.
#include "ulp/lower/ids.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

namespace {

void lower_embedding(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  Step step = step_of(runtime::Op::embedding, node);
  step.name = layer_name(node);
  const Value* weight = value_arg(node, "weight");
  Form form{DataType::f32, Layout::plain};
  int64_t stored = 0, width = 0;  // of codes: with what fills up the last group, and without
  if (is_coded_weight(builder.graph(), weight)) {
    const at::Tensor codes = builder.graph().attribute_tensor(weight->producer->arg("codes").value);
    const int64_t of_element = codes.scalar_type() == at::kByte ? 2 : 1;
    stored = of_element * codes[0].numel();
    width = node.output()->meta->sizes.back().offset;
    add_coded_weight(builder, node, step);
  } else {
    form.type = result_type(builder, group.result);
    add_float_constant(builder, node, "weight", "weight", step, form.type);
  }
  const int64_t rows = builder.plan().constants.at(step.constants.at("weight")).shape[0];
  step.inputs = {ids_tensor(builder, node, value_arg(node, "indices"), rows)};
  if (width == stored) return emit_same(builder, group, std::move(step), form);
  std::vector<int64_t> shape = shape_of(node, *node.output());
  shape.back() = stored;
  const int32_t whole = builder.emit(std::move(step), node.output()->name + ".whole", form, shape);
  const StridedView all = whole_view(whole, builder.plan().tensors[static_cast<size_t>(whole)]);
  builder.bind_view(node.output(), narrowed(all, shape.size() - 1, 0, width, 1).value());
}

void lower_coded_weight(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  for (const Node* user : builder.graph().users(node.output())) {
    const bool reads_weight = (user->is("aten::linear") || user->is("aten::embedding")) &&
                              user->arg("weight").value == node.output();
    if (!reads_weight) unsupported(node, "expected only linear layers and embeddings to read it");
  }
}

}  // namespace

void lower_select(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  const std::vector<int64_t> shape = shape_of(node, *x);
  Step step = step_of(runtime::Op::select, node);
  const int64_t index = int_arg(node, "index");
  step.attributes = runtime::SelectAttributes{index < 0 ? index + shape[1] : index};
  Form form = kept_form(builder, node, x);
  form.layout = Layout::plain;
  step.inputs = {builder.as(node, x, form)};
  emit_same(builder, group, std::move(step), form);
}

LoweringTable text_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::embedding", lower_embedding},
                                        {"ulp::dequantize_weight", lower_coded_weight}};
  return kTable;
}

}  // namespace ulp::lowering
